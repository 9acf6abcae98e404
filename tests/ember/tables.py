"""Small closed tables of general knowledge: the only facts about the world that ember learns."""

from __future__ import annotations

from tests.ember.notation import pairs, words

CAPITALS = pairs(
    """France: Paris; Italy: Rome; Germany: Berlin; Spain: Madrid; Portugal: Lisbon; Austria:
    Vienna; Switzerland: Bern; Belgium: Brussels; Norway: Oslo; Sweden: Stockholm; Denmark:
    Copenhagen; Finland: Helsinki; Iceland: Reykjavik; Ireland: Dublin; Poland: Warsaw; Hungary:
    Budapest; Romania: Bucharest; Bulgaria: Sofia; Greece: Athens; Turkey: Ankara; Ukraine:
    Kyiv; Russia: Moscow; Serbia: Belgrade; Croatia: Zagreb; Slovenia: Ljubljana; Slovakia:
    Bratislava; Estonia: Tallinn; Latvia: Riga; Lithuania: Vilnius; Albania: Tirana; Malta:
    Valletta; Cyprus: Nicosia; Egypt: Cairo; Morocco: Rabat; Tunisia: Tunis; Algeria: Algiers;
    Kenya: Nairobi; Ghana: Accra; Nigeria: Abuja; Senegal: Dakar; Ethiopia: Addis Ababa; Uganda:
    Kampala; Japan: Tokyo; China: Beijing; India: New Delhi; Thailand: Bangkok; Vietnam: Hanoi;
    Indonesia: Jakarta; Nepal: Kathmandu; Pakistan: Islamabad; Iran: Tehran; Iraq: Baghdad;
    Jordan: Amman; Lebanon: Beirut; Qatar: Doha; Canada: Ottawa; Mexico: Mexico City; Cuba:
    Havana; Peru: Lima; Chile: Santiago; Argentina: Buenos Aires; Brazil: Brasilia; Colombia:
    Bogota; Ecuador: Quito; Uruguay: Montevideo; Venezuela: Caracas; Australia: Canberra"""
)

OPPOSITES = pairs(
    """hot: cold; big: small; tall: short; fast: slow; old: young; happy: sad; light: dark; up:
    down; left: right; open: closed; full: empty; early: late; rich: poor; strong: weak; hard:
    soft; wet: dry; clean: dirty; loud: quiet; high: low; near: far; thick: thin; wide: narrow;
    heavy: light; good: bad; new: old; day: night; black: white; true: false; first: last;
    inside: outside; above: below; easy: difficult; cheap: expensive; deep: shallow; sharp:
    blunt; sweet: sour; smooth: rough; brave: afraid; begin: end; win: lose; buy: sell; push:
    pull; arrive: leave; remember: forget; love: hate; laugh: cry; give: take; question: answer;
    friend: enemy; summer: winter; north: south; east: west; yes: no; always: never; more: less;
    on: off"""
)
THING_COLORS = pairs(
    """grass: green; the sky: blue; snow: white; blood: red; the sun: yellow; coal: black; an
    orange: orange; a banana: yellow; a lemon: yellow; a tomato: red; a carrot: orange; a leaf:
    green; milk: white; chocolate: brown; a strawberry: red; an elephant: gray; a frog: green; a
    crow: black; a swan: white; a cherry: red; sand: yellow; a pea: green; a flamingo: pink;
    salt: white; a polar bear: white"""
)
COLOR_MIXES = pairs(
    """blue and yellow: green; red and yellow: orange; red and blue: purple; red and white: pink;
    black and white: gray; red and green: brown; blue and white: light blue"""
)
PLURALS = pairs(
    """cat: cats; dog: dogs; house: houses; book: books; mouse: mice; child: children; foot: feet;
    tooth: teeth; goose: geese; man: men; woman: women; person: people; ox: oxen; leaf: leaves;
    knife: knives; wolf: wolves; shelf: shelves; loaf: loaves; half: halves; city: cities; baby:
    babies; berry: berries; story: stories; party: parties; lady: ladies; box: boxes; bus:
    buses; fox: foxes; dish: dishes; watch: watches; glass: glasses; peach: peaches; brush:
    brushes; potato: potatoes; tomato: tomatoes; hero: heroes; sheep: sheep; fish: fish; deer:
    deer; key: keys; day: days; toy: toys; boy: boys; piano: pianos; photo: photos; tree: trees;
    apple: apples; table: tables; lamp: lamps; star: stars; cup: cups; bird: birds; car: cars;
    friend: friends; wife: wives; life: lives"""
)
ANIMAL_SOUNDS = pairs(
    """dog: barks; cat: meows; cow: moos; sheep: bleats; pig: oinks; duck: quacks; horse: neighs;
    lion: roars; frog: croaks; bee: buzzes; owl: hoots; snake: hisses; rooster: crows; donkey:
    brays; wolf: howls; mouse: squeaks; bird: chirps; turkey: gobbles; elephant: trumpets; crow:
    caws; goat: bleats; hen: clucks; bear: growls; pigeon: coos"""
)
ANIMAL_YOUNG = pairs(
    """dog: puppy; cat: kitten; cow: calf; sheep: lamb; pig: piglet; duck: duckling; horse: foal;
    lion: cub; frog: tadpole; goat: kid; hen: chick; bear: cub; deer: fawn; goose: gosling;
    kangaroo: joey; swan: cygnet; owl: owlet; elephant: calf; whale: calf; fox: cub; seal: pup;
    eagle: eaglet; wolf: pup; rabbit: kit; butterfly: caterpillar"""
)
ANIMAL_HOMES = pairs(
    """bird: nest; bee: hive; dog: kennel; horse: stable; pig: sty; fox: den; lion: den; spider:
    web; rabbit: burrow; bear: den; cow: barn; beaver: lodge; hen: coop; ant: anthill; fish:
    water"""
)
ANIMAL_LEGS = pairs(
    """dog: four; cat: four; spider: eight; bird: two; ant: six; bee: six; horse: four; snake: no;
    fish: no; cow: four; butterfly: six; duck: two; hen: two; frog: four; crab: ten; beetle:
    six; pig: four; human: two; lion: four; fly: six; worm: no; ladybird: six"""
)
SHAPE_SIDES = pairs(
    """triangle: 3; square: 4; rectangle: 4; pentagon: 5; hexagon: 6; heptagon: 7; octagon: 8;
    nonagon: 9; decagon: 10; rhombus: 4; trapezoid: 4; parallelogram: 4; dodecagon: 12"""
)
SYMBOLS = pairs(
    """hydrogen: H; helium: He; lithium: Li; carbon: C; nitrogen: N; oxygen: O; fluorine: F; neon:
    Ne; sodium: Na; magnesium: Mg; aluminium: Al; silicon: Si; phosphorus: P; sulfur: S;
    chlorine: Cl; argon: Ar; potassium: K; calcium: Ca; iron: Fe; nickel: Ni; copper: Cu; zinc:
    Zn; silver: Ag; tin: Sn; iodine: I; platinum: Pt; gold: Au; mercury: Hg; lead: Pb; uranium:
    U"""
)
FORMULAS = pairs(
    """water: H2O; carbon dioxide: CO2; table salt: NaCl; methane: CH4; ammonia: NH3; oxygen gas:
    O2; ozone: O3"""
)
STATES = pairs(
    """ice: solid; water: liquid; steam: gas; milk: liquid; stone: solid; air: gas; iron: solid;
    oil: liquid; oxygen: gas; wood: solid; juice: liquid; glass: solid; helium: gas"""
)
PLANETS = ("Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune")
CATEGORIES = {
    "fruit": words("""apple pear plum peach cherry lemon orange banana grape melon mango kiwi"""),
    "animal": words(
        """cat dog horse cow pig sheep goat fox wolf bear lion tiger rabbit mouse frog"""
    ),
    "color": words("""red blue green yellow black white purple pink brown gray"""),
    "vegetable": words("""carrot potato onion cabbage spinach pea bean broccoli leek"""),
    "tool": words("""hammer saw drill wrench screwdriver pliers"""),
    "instrument": words("""piano guitar violin drum flute trumpet harp"""),
    "vehicle": words("""car bus train bicycle truck ship tractor"""),
    "drink": words("""tea coffee juice milk water lemonade"""),
    "shape": words("""circle square triangle rectangle hexagon"""),
    "season": words("""spring summer autumn winter"""),
    "planet": words("""Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune"""),
    "metal": words("""iron gold silver copper tin zinc lead"""),
    "month": words("""January February March April May June July August"""),
    "day": words("""Monday Tuesday Wednesday Thursday Friday Saturday Sunday"""),
}
JOBS = pairs(
    """bakes bread: baker; teaches children: teacher; flies planes: pilot; grows food: farmer; puts
    out fires: firefighter; drives a bus: driver; treats sick people: doctor; treats sick
    animals: vet; writes books: author; cooks meals: cook; cuts hair: hairdresser; paints
    pictures: painter; fixes pipes: plumber; catches fish: fisherman; builds houses: builder;
    delivers letters: postman; looks after teeth: dentist; sings songs: singer"""
)
SENSES = pairs(
    """see: eyes; hear: ears; smell: nose; taste: tongue; touch: skin; walk: legs; think: brain;
    breathe: lungs; chew: teeth; wave: hands; pump blood: heart"""
)
PAST_TENSES = pairs(
    """go: went; see: saw; eat: ate; run: ran; come: came; take: took; give: gave; write: wrote;
    drink: drank; sing: sang; swim: swam; buy: bought; think: thought; bring: brought; teach:
    taught; find: found; make: made; say: said; have: had; is: was; do: did; get: got; know:
    knew; grow: grew; fly: flew; draw: drew; speak: spoke; break: broke; sleep: slept; feel:
    felt; keep: kept; leave: left; walk: walked; play: played; jump: jumped; work: worked; look:
    looked; want: wanted; call: called; help: helped; open: opened"""
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
MONTH_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
MONTH_SEASONS = (
    "winter",
    "winter",
    "spring",
    "spring",
    "spring",
    "summer",
    "summer",
    "summer",
    "autumn",
    "autumn",
    "autumn",
    "winter",
)
SEASONS = ("spring", "summer", "autumn", "winter")
ORDINALS = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
)
UNITS: tuple[tuple[str, str, int], ...] = (
    ("seconds", "a minute", 60),
    ("minutes", "an hour", 60),
    ("hours", "a day", 24),
    ("days", "a week", 7),
    ("months", "a year", 12),
    ("weeks", "a year", 52),
    ("days", "a year", 365),
    ("days", "a leap year", 366),
    ("years", "a decade", 10),
    ("years", "a century", 100),
    ("years", "a millennium", 1000),
    ("centimeters", "a meter", 100),
    ("millimeters", "a centimeter", 10),
    ("meters", "a kilometer", 1000),
    ("grams", "a kilogram", 1000),
    ("milliliters", "a liter", 1000),
    ("kilograms", "a ton", 1000),
    ("inches", "a foot", 12),
    ("feet", "a yard", 3),
    ("cents", "a dollar", 100),
    ("eggs", "a dozen", 12),
    ("seasons", "a year", 4),
    ("quarters", "a year", 4),
    ("minutes", "half an hour", 30),
    ("minutes", "a quarter of an hour", 15),
    ("hours", "two days", 48),
    ("bits", "a byte", 8),
    ("bytes", "a kibibyte", 1024),
    ("letters", "the alphabet", 26),
    ("degrees", "a full circle", 360),
    ("degrees", "a right angle", 90),
    ("items", "a pair", 2),
    ("players", "a football team", 11),
    ("continents", "the world", 7),
    ("planets", "the solar system", 8),
)
