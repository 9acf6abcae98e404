"""Word lists and made-up words: what the skills fill their sentences with.

Every list is written here by hand; nothing is read from outside the repository.
"""

from __future__ import annotations

from random import Random

from tests.ember.notation import words

FIRST_NAMES = words(
    """Ada Adam Aisha Alan Alba Alex Alice Amir Amy Ana Andre Anna Anton Arthur Asha Ben Bella
    Boris Bruno Carl Carla Carlos Cara Chen Chloe Clara Claire Colin Cora Dana Daniel Dara David
    Diego Dora Edith Elena Eli Elif Ella Elsa Emil Emily Emma Eric Erik Eva Farah Felix Fiona
    Frank Frida Gina Grace Greta Hana Hannah Harry Hassan Hugo Ida Igor Ines Iris Isaac Ivan Ivy
    Jack Jacob Jane Jasmine Javier Jenny Joe John Jonas Jose Julia June Kai Karen Karim Kate
    Kenji Lara Laura Leila Lena Leo Liam Lily Lina Linda Lisa Lola Louis Lucas Lucy Luis Luna
    Maja Marco Maria Marie Mark Marta Martin Mary Max Maya Mei Mia Mila Milo Mina Mohamed Mona
    Nadia Nico Nina Noah Nora Olga Oliver Olivia Omar Oscar Otto Owen Pablo Paul Paula Pedro
    Peter Petra Priya Quinn Rachel Ravi Rita Robert Robin Rosa Ruby Ruth Sam Sami Sara Simon
    Sofia Sonia Stella Susan Tara Theo Thomas Tina Tom Tony Uma Vera Victor Viktor Wanda Wei
    William Yara Yuki Zara Zoe"""
)
LAST_NAMES = words(
    """Adams Allen Baker Bell Berg Brown Carter Chang Clark Cole Costa Cruz Davis Diaz Evans
    Fischer Foster Garcia Gomez Gray Green Hall Hansen Harris Hill Hughes Ito James Jones Keller
    Khan Kim King Klein Kumar Lee Lewis Lopez Martin Meyer Miller Moore Morgan Murphy Nguyen
    Novak Parker Patel Perez Perry Reed Reyes Rossi Russo Sato Silva Singh Smith Stone Tanaka
    Taylor Torres Turner Walker Ward Weber White Wilson Wood Wright Young"""
)
CITIES = words(
    """Paris Rome Berlin Madrid London Vienna Oslo Lisbon Dublin Athens Cairo Tokyo Seoul Beijing
    Delhi Mumbai Lima Quito Havana Boston Chicago Denver Dallas Seattle Austin Miami Houston
    Toronto Montreal Vancouver Sydney Melbourne Perth Auckland Nairobi Lagos Accra Dakar Tunis
    Rabat Dubai Doha Istanbul Ankara Warsaw Krakow Prague Budapest Zurich Geneva Basel Munich
    Hamburg Cologne Frankfurt Stuttgart Dresden Leipzig Milan Turin Naples Venice Florence Genoa
    Lyon Nice Lille Nantes Bordeaux Marseille Toulouse Brussels Ghent Antwerp Amsterdam Utrecht
    Rotterdam Leiden Bergen Helsinki Tampere Stockholm Malmo Copenhagen Aarhus Riga Vilnius
    Tallinn Sofia Bucharest Belgrade Zagreb Split Porto Seville Valencia Bilbao Granada Leeds
    York Bath Bristol Oxford Cambridge Glasgow Edinburgh Cardiff Belfast Cork Galway Kyoto Osaka
    Nagoya Busan Hanoi Manila Jakarta Bangkok Singapore Lucknow Chennai Jaipur Karachi Lahore
    Dhaka Kathmandu Tehran Baghdad Amman Beirut Bogota Caracas Santiago Montevideo Salvador
    Recife Phoenix Portland Memphis Atlanta Orlando Tampa Detroit Cleveland Tucson Omaha Reno
    Boise Fresno Oakland"""
)
ANIMALS = words(
    """cat dog horse cow pig sheep goat duck hen goose fox wolf bear deer rabbit mouse rat frog
    toad owl eagle crow robin swan seal whale shark dolphin otter beaver badger hedgehog
    squirrel lion tiger zebra giraffe elephant monkey camel donkey snake turtle lizard crab bee
    ant spider butterfly snail parrot penguin kangaroo panda"""
)
FRUITS = words(
    """apple pear plum peach cherry lemon orange banana grape melon mango fig date lime apricot
    raspberry strawberry blueberry pineapple coconut papaya kiwi"""
)
FOODS = words(
    """bread butter cheese milk eggs rice pasta soup salad cake honey sugar salt pepper flour
    potatoes tomatoes carrots onions beans peas mushrooms garlic spinach fish chicken noodles
    pizza coffee tea juice yogurt chocolate cookies jam oil nuts"""
)
OBJECTS = words(
    """lamp table chair spoon fork knife plate cup glass bottle basket box bag book pen pencil
    paper candle clock mirror window door key lock rope hammer nail ladder bucket broom brush
    comb button needle thread shirt coat hat scarf glove shoe boot sock ring coin map letter
    stamp flag drum flute violin piano guitar bell ball kite doll puzzle bicycle wagon boat ship
    train tractor bridge tower castle garden fence gate roof stove oven kettle pan pot blanket
    pillow carpet curtain shelf drawer umbrella lantern compass telescope camera radio phone
    laptop printer screen keyboard"""
)
NATURE = words(
    """sun moon star sky cloud rain snow wind storm river lake sea ocean island mountain valley
    hill forest tree leaf flower grass stone sand beach desert cave field meadow path winter
    summer spring autumn morning evening night shadow rainbow thunder planet fire water earth"""
)
ABSTRACT = words(
    """friend school house village city family teacher doctor baker farmer sailor painter singer
    writer pilot nurse driver cook market kitchen bakery library museum theater hospital station
    airport harbor hotel office factory music song dance story game prize party holiday birthday
    journey adventure secret idea dream problem answer question number letter word language
    color paper money price gift present surprise happy quiet brave clever gentle honest patient
    simple strong yellow purple silver golden wooden little giant computer memory model daemon
    prompt token server python"""
)
ADJECTIVES = words(
    """red blue green yellow black white small big old new round soft heavy light warm cold bright
    dark quick slow quiet loud clean broken shiny wooden plastic cheap fancy simple strong"""
)
VERBS = words(
    """open close start stop turn walk run jump sing read write draw paint cook bake build clean
    wash fix carry push pull find hide send call meet help teach learn plant grow wait watch
    listen speak travel swim climb sleep dream laugh share"""
)
COMMON_WORDS = tuple(
    dict.fromkeys((*ANIMALS, *FRUITS, *FOODS, *OBJECTS, *NATURE, *ABSTRACT, *ADJECTIVES, *VERBS))
)

ONSETS = words(
    """b c d f g h j k l m n p r s t v w z br cl cr dr fl gr pl pr sh sk sl sp st th tr ch"""
)
VOWELS = words("""a e i o u a e i o u ai ea ee oo ou""")
CODAS = ("", "", "", "", "n", "r", "l", "s", "t", "m", "k", "d", "nd", "st", "ck", "ng")


def syllable(rng: Random) -> str:
    """One made-up syllable."""
    return rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS)


def made_up_word(rng: Random, syllables: int | None = None) -> str:
    """A pronounceable lower-case word nobody knows."""
    count = syllables if syllables is not None else rng.choice((1, 2, 2, 2, 3))
    return "".join(syllable(rng) for _ in range(count))


def plain_word(rng: Random) -> str:
    """A common lower-case word, or now and then a made-up one."""
    return rng.choice(COMMON_WORDS) if rng.random() < 0.6 else made_up_word(rng)


def first_name(rng: Random) -> str:
    """A given name, one in five made up so that names are copied rather than remembered."""
    return rng.choice(FIRST_NAMES) if rng.random() < 0.7 else made_up_word(rng, 2).capitalize()


def full_name(rng: Random) -> str:
    """A given name and a family name."""
    last = rng.choice(LAST_NAMES) if rng.random() < 0.7 else made_up_word(rng).capitalize()
    return f"{first_name(rng)} {last}"


def city(rng: Random) -> str:
    """A city, one in five made up."""
    return rng.choice(CITIES) if rng.random() < 0.7 else made_up_word(rng, 2).capitalize()
