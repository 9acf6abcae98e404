"""Proposals from earlier text: what followed the last tokens when they occurred before.

Each sequence is tracked token by token, whether it has drafts or not, so the hit rate of its past
is known without asking the model. Besides its own past, only recent answers with the same salt are
searched, so that nobody can learn from the time of an answer what others were told.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence

from runner.engine.odds import Odds, Proposals
from runner.engine.running_sequence import RunningSequence
from runner.engine.step_costs import MIN_ODDS
from runner.engine.token_index import MAX_CONTEXT, MAX_LENGTH, RUN_TOKENS, TokenIndex, common

MAX_ANSWER_TOKENS = 8192  # of each salt's recent answers; then the older half of them leaves
MAX_SALTS = 32
_LONG = 8  # a match that is copied, and whose text goes on near the place where it broke ...
_NEAR_TOKENS = 48  # ... within so many tokens, ...
_NEAR_AGE = 24  # ... for so many tokens of the answer

# Where all matches are short, the places that end like the text vote on what follows
VOTE_S = 40e-6
_WEIGHTS = [2.0**length for length in range(MAX_CONTEXT + 1)]
_DOUBT = 4.0  # the weight of all that was not seen
_SHARES = 5  # kinds of votes by what the token has of all weight
_MIN_REACH = 0.1  # what is needed less likely pays for no row

# The kinds of odds: by the length of the match, of votes, and of matches near by their length from
# -3 up
_KINDS = [*range(7), *(min(6 + (length - 4) // 3, 12) for length in range(7, MAX_LENGTH + 1))]
_FIRST_VOTE = 13
_FIRST_ODDS = (
    [1 - 1 / (1 + 0.4 * (n if n <= 6 else 3 * n - 12)) for n in range(_FIRST_VOTE)]
    + [
        (share + 0.3) / _SHARES * (0.45 + 0.08 * length)
        for share in range(_SHARES)
        for length in range(MAX_CONTEXT + 1)
    ]
    + [0.3] * 3
)


class RecentAnswers:
    """The last answers of one salt."""

    __slots__ = ("index",)

    def __init__(self) -> None:
        self.index = TokenIndex(array("i"), 0)

    def add(self, answer: array[int]) -> None:
        """An answer has ended, or is interrupted."""
        tokens = self.index.tokens
        if len(tokens) + len(answer) > MAX_ANSWER_TOKENS:
            kept = (tokens + answer)[-MAX_ANSWER_TOKENS // 2 :]
            self.index = TokenIndex(kept, len(kept))  # who follows the old one goes on with it
            return
        tokens.extend(answer)
        for _ in answer:
            self.index.extend()


class Follower:
    """One sequence, and the place in what was written before that it follows."""

    __slots__ = ("_age", "_all_odds", "_anchor", "_answers", "_index", "_length", "_odds",
                 "_place", "_source", "_voted", "salt", "start", "tokens")  # fmt: skip

    def __init__(self, running: RunningSequence, answers: RecentAnswers, odds: Odds) -> None:
        """odds: of all sequences."""
        self.tokens = running.tokens
        self.salt = running.salt
        self.start = len(self.tokens) - 1
        self._answers = answers
        self._all_odds = odds  # a short answer has too few votes to learn from
        self._odds = Odds(odds)
        self._index = TokenIndex(self.tokens, self.start)
        self._source, self._place = self.tokens, 0  # 0: it follows nothing
        self._length = 0  # of the match; less than 0: of one near, less RUN_TOKENS
        self._anchor: tuple[array[int], int] | None = None  # where a long match broke
        self._age = 0  # tokens since then
        self._voted: list[tuple[int, int]] = []  # the last proposals by votes, with their kinds

    def follow(self) -> None:
        """Take in the tokens that have come."""
        self._judge()
        for end in range(len(self._index) + 1, len(self.tokens) + 1):
            self._age += 1
            if not (self._place and self._goes_on(self.tokens[end - 1])):
                self._search(end)
            self._index.extend()

    def propose(self, limit: int, votes: bool) -> Proposals:
        """At most limit tokens that may follow. votes: where it follows no long match, look at all
        places."""
        copied = self._copy(limit)
        if not votes or self._length >= _LONG:
            return copied
        voted = self._elect(limit)
        return copied if self._length < 0 and copied[1][:1] > voted[1][:1] else voted

    def _copy(self, limit: int) -> Proposals:
        """What comes next in the text that it follows."""
        source, place = self._source, self._place
        if not place or limit < 1:
            return [], []
        found = source[place : place + limit].tolist()
        if source is self.tokens and len(found) < limit:  # what repeats itself goes on to do so
            found = (found * (limit // len(found) + 1))[:limit]
        odds: list[float] = []
        length, reach = self._length, 1.0
        for token in found:
            one = self._odds.of(_kind(length))
            reach *= one
            if reach < MIN_ODDS or token < 0:  # an image
                break
            odds.append(one)
            length = _longer(length)
        return found[: len(odds)], odds

    def _elect(self, limit: int) -> Proposals:
        """The tokens that followed most of the last ones in most places, one after the other."""
        found: list[int] = []
        odds: list[float] = []
        self._voted, reach = [], 1.0
        context = self.tokens[-MAX_CONTEXT:].tolist()
        while len(found) < limit and reach >= _MIN_REACH and context:
            weights: dict[int, float] = {}
            lengths: dict[int, int] = {}
            for index in (self._index, self._answers.index):
                for token, length in index.following(context):
                    weights[token] = weights.get(token, 0.0) + _WEIGHTS[length]
                    lengths[token] = max(lengths.get(token, 0), length)
            if not weights:
                break
            token = max(weights, key=weights.__getitem__)
            share = weights[token] / (sum(weights.values()) + _DOUBT)
            kind = _FIRST_VOTE + int(share * _SHARES) * (MAX_CONTEXT + 1) + lengths[token]
            if token < 0:  # an image
                break
            self._voted.append((token, kind))
            found.append(token)
            odds.append(self._all_odds.of(kind))
            reach *= odds[-1]
            context.append(token)
        return found, odds

    def _judge(self) -> None:
        """See which of the last votes were right."""
        start = len(self._index)
        for (voted, kind), token in zip(self._voted, self.tokens[start:], strict=False):
            self._all_odds.observe(kind, voted == token)
            if voted != token:
                break
        self._voted = []

    def _goes_on(self, token: int) -> bool:
        """Whether the match is still one, and long enough not to look for another."""
        source, place = self._source, self._place
        if place >= len(source):
            return False
        right = source[place] == token
        self._odds.observe(_kind(self._length), right)
        if right:
            self._place = place + 1
            self._length = _longer(self._length)
            return self._length < 0 or self._length >= RUN_TOKENS
        if self._length >= _LONG or self._length < 0:
            self._anchor, self._age = (source, place), 0
        return False

    def _search(self, end: int) -> None:
        tokens = self.tokens
        self._source = tokens
        self._place, self._length = self._index.find(tokens, end)
        answers = self._answers.index
        if self._length < MAX_LENGTH and len(answers):
            place, length = answers.find(tokens, end)
            if length > self._length:
                self._source, self._place, self._length = answers.tokens, place, length
        if self._anchor is not None and self._age <= _NEAR_AGE and self._length < _LONG:
            self._search_near(*self._anchor, end)

    def _search_near(self, source: array[int], broken: int, end: int) -> None:
        """Take the place after the same token beyond the one where the match broke, or the one
        after a single token that was replaced, if it is likelier."""
        try:
            place = source.index(self.tokens[end - 1], broken, broken + _NEAR_TOKENS) + 1
        except ValueError:
            if self._age:
                return
            place = broken + 1
        if place >= (end if source is self.tokens else len(source)):
            return
        length = min(common(source, place, self.tokens, end), RUN_TOKENS - 1) - RUN_TOKENS
        found = self._odds.of(_kind(self._length)) if self._place else 0.0
        if self._odds.of(_kind(length)) > found:
            self._source, self._place, self._length = source, place, length


def _kind(length: int) -> int:
    return _KINDS[length] if length >= 0 else length


def _longer(length: int) -> int:
    """The length of a match after one token more."""
    return RUN_TOKENS if length == -1 else min(length + 1, MAX_LENGTH)


class PromptLookup:
    """What was written before, for all sequences of one model."""

    def __init__(self) -> None:
        self._odds = Odds(_FIRST_ODDS)
        self._followers: dict[str, Follower] = {}
        self._answers: OrderedDict[str | None, RecentAnswers] = OrderedDict()
        self._votes = True

    def follow(self, decoding: Sequence[RunningSequence], *, votes: bool = True) -> None:
        """Take in the tokens that have come for these sequences; all others are no longer
        followed. votes: whether propose may take VOTE_S for each of them."""
        self._votes = votes
        followers = self._followers
        for running in decoding:
            follower = followers.get(running.id)
            if follower is None or follower.tokens is not running.tokens:
                follower = self._begin(running, follower)
            follower.follow()
        if len(followers) > len(decoding):
            ids = {running.id for running in decoding}
            for id in [id for id in followers if id not in ids]:
                self._end(followers.pop(id))

    def propose(self, running: RunningSequence, limit: int) -> Proposals:
        """At most limit tokens that may follow in a sequence, as far as follow knows it."""
        return self._followers[running.id].propose(limit, self._votes)

    def _begin(self, running: RunningSequence, before: Follower | None) -> Follower:
        if before is not None:
            self._end(before)
        follower = Follower(running, self._answers_of(running.salt), self._odds)
        self._followers[running.id] = follower
        return follower

    def _end(self, follower: Follower) -> None:
        self._answers_of(follower.salt).add(follower.tokens[follower.start :])

    def _answers_of(self, salt: str | None) -> RecentAnswers:
        answers = self._answers.setdefault(salt, RecentAnswers())
        self._answers.move_to_end(salt)
        if len(self._answers) > MAX_SALTS:
            self._answers.popitem(last=False)
        return answers
