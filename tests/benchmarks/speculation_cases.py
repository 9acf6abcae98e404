"""What the benchmark of speculation asks: edits of files, new code, prose and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

INVENTORY = '''\
"""Stock of a small shop."""

from dataclasses import dataclass


@dataclass
class Item:
    name: str
    price: float
    count: int = 0


class Inventory:
    def __init__(self):
        self.items = {}

    def add(self, name, price, count=1):
        if name in self.items:
            self.items[name].count += count
        else:
            self.items[name] = Item(name, price, count)

    def remove(self, name, count=1):
        item = self.items[name]
        if item.count < count:
            raise ValueError(f"only {item.count} of {name} left")
        item.count -= count
        if item.count == 0:
            del self.items[name]

    def total(self):
        return sum(item.price * item.count for item in self.items.values())
'''

SERVER = """\
const http = require("http");
const fs = require("fs");
const path = require("path");

const ROOT = path.join(__dirname, "public");
const PORT = 8080;

const TYPES = {
  ".html": "text/html",
  ".css": "text/css",
  ".js": "text/javascript",
  ".png": "image/png",
};

function send(response, status, type, body) {
  response.writeHead(status, { "Content-Type": type });
  response.end(body);
}

const server = http.createServer((request, response) => {
  const name = request.url === "/" ? "/index.html" : request.url;
  const file = path.join(ROOT, path.normalize(name));
  fs.readFile(file, (error, content) => {
    if (error) {
      send(response, 404, "text/plain", "not found");
      return;
    }
    const type = TYPES[path.extname(file)] || "application/octet-stream";
    send(response, 200, type, content);
  });
});

server.listen(PORT, () => console.log(`listening on ${PORT}`));
"""

SETTINGS = """\
[server]
host = "127.0.0.1"
port = 8000
workers = 4
timeout_seconds = 30

[database]
url = "postgres://localhost/shop"
pool_size = 10
echo = false

[cache]
backend = "memory"
max_entries = 1000
ttl_seconds = 300

[logging]
level = "info"
format = "json"
file = "/var/log/shop.log"

[mail]
host = "mail.example.com"
port = 587
sender = "shop@example.com"
"""

TEXT_TOOLS = """\
import re


def words(text):
    return re.findall(r"[a-z']+", text.lower())


def count_words(text):
    counts = {}
    for word in words(text):
        counts[word] = counts.get(word, 0) + 1
    return counts


def most_common(text, n=10):
    counts = count_words(text)
    return sorted(counts.items(), key=lambda pair: pair[1], reverse=True)[:n]


def wrap(text, width=72):
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    if line:
        lines.append(line)
    return "\\n".join(lines)
"""

GUIDE = """\
# Garden guide

## Tomatoes

Sow indoors in March. Plant out after the last frost, 50 cm apart. Water at the base of the plant,
never on the leaves. Remove side shoots once a week.

## Beans

Sow outdoors in May, 3 cm deep, around a pole of 2 m. Beans need no fertilizer. Pick them young, or
the plant stops to flower.

## Carrots

Sow in rows from April on, 1 cm deep. Thin the seedlings to 4 cm. Carrots and onions grow well side
by side.

## Lettuce

Sow every two weeks from April to August. Lettuce germinates badly above 20 degrees. Harvest in the
morning.
"""

_FILES = {"py": INVENTORY, "js": SERVER, "toml": SETTINGS, "text.py": TEXT_TOOLS, "md": GUIDE}
_EDITS = [
    ("py", "Rename the class Inventory to Stock."),
    ("py", "Add type hints to all methods of Inventory."),
    ("py", "Let remove return the number that is left."),
    ("py", "Raise KeyError with a message in remove when the name is unknown."),
    ("js", "Change the port to 3000."),
    ("js", "Add image/svg+xml for .svg files."),
    ("js", "Answer with status 405 when the method is not GET."),
    ("js", "Rename the function send to reply."),
    ("toml", "Set the database pool size to 25 and the log level to debug."),
    ("toml", "Add a section [metrics] with enabled = true and port = 9100 at the end."),
    ("toml", "Remove the section [mail]."),
    ("toml", "Change the cache backend to redis and add its url redis://localhost:6379."),
    ("text.py", "Add a docstring of one line to each function."),
    ("text.py", "Let most_common sort equal counts by word."),
    ("text.py", "Let wrap raise ValueError when width is less than 1."),
    ("text.py", "Rename the parameter n of most_common to limit."),
    ("md", "Change the distance between tomatoes to 60 cm."),
    ("md", "Add a section on radishes at the end, of two sentences."),
    ("md", "Correct 'stops to flower' to 'stops flowering'."),
    ("md", "Rename the section Beans to Runner beans."),
]

_FUNCTIONS = [
    ("is_sorted(values: list[int]) -> bool", "Return whether values never decrease."),
    ("rotate(values: list[int], by: int) -> list[int]", "Rotate values to the right, by places."),
    ("roman(number: int) -> str", "Write a number of 1 to 3999 in Roman numerals."),
    ("balanced(text: str) -> bool", "Return whether the brackets ()[]{} in text are balanced."),
    ("primes(limit: int) -> list[int]", "Return all primes up to limit, by a sieve."),
    ("merge(left: list[int], right: list[int]) -> list[int]", "Merge two sorted lists into one."),
    ("run_lengths(text: str) -> list[tuple[str, int]]", "Return the runs of equal characters."),
    ("transpose(rows: list[list[int]]) -> list[list[int]]", "Return the columns of a table."),
    ("edit_distance(left: str, right: str) -> int", "Return the Levenshtein distance."),
    ("flatten(items: list) -> list", "Flatten nested lists of any depth."),
    ("anagrams(words: list[str]) -> list[list[str]]", "Group words that are anagrams."),
    ("binary_search(values: list[int], wanted: int) -> int", "Return the place of wanted, or -1."),
]

_PROSE = [
    "Tell a story about a lighthouse keeper and a storm.",
    "Explain how bread rises, to a child of ten.",
    "What should I see in Lisbon on a rainy weekend?",
    "Write a letter to a friend who has moved to another city.",
    "Why did the Roman Empire fall?",
    "Describe the smell of a forest after rain.",
    "What are the advantages and the dangers of living on Mars?",
    "Give advice to somebody who begins to learn the violin.",
]

_TEXT, _WHOLE, _NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
_WORDS = {"type": "array", "items": {"type": "string"}, "maxItems": 4}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(item: dict[str, Any], count: int) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": count, "maxItems": count}


_PERSON = _object(first_name=_TEXT, last_name=_TEXT, age=_WHOLE, occupation=_TEXT, city=_TEXT)
_SCHEMAS = [
    ("Describe an invented person.", _PERSON),
    ("List five invented customers.", _object(customers=_list(_PERSON, 5))),
    ("Describe a recipe for pancakes.", _object(
        title=_TEXT, preparation_minutes=_WHOLE, servings=_WHOLE, difficulty={"enum": [
            "easy", "medium", "hard"]}, ingredients=_list(_object(
                name=_TEXT, amount=_NUMBER, unit=_TEXT), 5), steps=_WORDS)),
    ("Describe the weather of a week in Oslo.", _object(place=_TEXT, country=_TEXT, days=_list(
        _object(weekday=_TEXT, temperature_celsius=_NUMBER, wind_speed_kmh=_NUMBER,
                precipitation_probability=_NUMBER, description=_TEXT), 7))),
    ("Extract the order: Anna Berg wants 3 red mugs at 8.50 and 2 plates at 12, sent to Bergen.",
     _object(customer_name=_TEXT, shipping_city=_TEXT, total_price=_NUMBER, order_lines=_list(
         _object(product_name=_TEXT, quantity=_WHOLE, unit_price=_NUMBER), 2))),
    ("Describe four planets.", _object(planets=_list(_object(
        name=_TEXT, diameter_km=_NUMBER, number_of_moons=_WHOLE, has_rings={"type": "boolean"},
        distance_from_sun_million_km=_NUMBER), 4))),
    ("Review an invented film.", _object(
        film_title=_TEXT, release_year=_WHOLE, director_name=_TEXT, rating_out_of_ten=_NUMBER,
        strengths=_WORDS, weaknesses=_WORDS, summary=_TEXT, recommended={"type": "boolean"})),
    ("Plan three tasks for moving house.", _object(project_name=_TEXT, tasks=_list(_object(
        task_name=_TEXT, responsible_person=_TEXT, estimated_hours=_NUMBER, priority={"enum": [
            "low", "medium", "high"]}, completed={"type": "boolean"}), 3))),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One question. least: the target for its kind, of the speed with drafts to that without."""

    kind: str
    question: str
    least: float
    schema: dict[str, Any] | None = None


def _edit(name: str, change: str) -> Case:
    text = f"Here is a file:\n\n```\n{_FILES[name]}```\n\n{change} Answer with the whole file."
    return Case("edit", text, 2.0)


def _function(signature: str, purpose: str) -> Case:
    text = f'Complete this function:\n\ndef {signature}:\n    """{purpose}"""\n'
    return Case("code", text, 1.3)


CASES: tuple[Case, ...] = (
    *(_edit(name, change) for name, change in _EDITS),
    *(_function(signature, purpose) for signature, purpose in _FUNCTIONS),
    *(Case("prose", question, 0.98) for question in _PROSE),
    *(Case("json", f"{question} Answer in JSON.", 1.5, schema) for question, schema in _SCHEMAS),
)
