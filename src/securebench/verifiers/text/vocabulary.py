"""Closed lists of English words by which verifiers distinguish an answer from the words around it.

Other wordings and languages are not recognized: answers in them are compared as plain text.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FILLERS: Final = _words(
    """the a an it it's its is was are were be that that's this so thus hence therefore i we my answer think believe
    would in at of on to by for from there result solution conclusion"""
)
"""Words that may accompany any answer without changing it."""

FUNCTION_WORDS: Final = FILLERS | _words(
    """he she they you him her them me us his our your their who whom what which when where why how there here these
    those and but if then than as with within into onto over under after before about between through during up down
    off out am been being do does did has have had can could may might must shall should will"""
)
"""Words that do not count as content, such as ``the``, ``she``, ``with`` and ``must``."""

CHOICE_FILLERS: Final = FILLERS | _words(
    """option choice statement letter correct right best final one choose chose pick select go with i'd i'll must
    conclude answered"""
)
"""Words that may surround the label of a choice without changing the answer."""

KINDS: Final = _words(
    """city town village country state province region island continent river lake ocean sea mountain planet star
    animal plant element metal gas compound organ organelle cell language currency symbol name term word effect
    phenomenon process principle law theory theorem method concept type kind form book novel play poem film song work
    year number letter"""
)
"""Common nouns that may precede the name of a thing: ``the city of Paris``."""

ROLES: Final = _words(
    """author writer novelist poet playwright painter artist sculptor composer musician singer actor actress director
    architect inventor discoverer scientist physicist chemist biologist mathematician astronomer engineer explorer
    philosopher historian economist politician president leader founder creator capital"""
)
"""What a person or thing may be called in relation to another: ``the author of``."""

MAKERS: Final = _words(
    """wrote written authored created made discovered invented composed painted developed formulated designed built
    founded directed"""
)
"""Verbs for making or discovering something, as in ``it was written by``. Beside a name, they are filler."""

CONNECTORS: Final = _words(
    """because due caused called known named termed referred credited considered as official officially correct
    commonly full our with lies located situated gives appears
    sir dame lord lady dr mr mrs ms professor saint
    makes yields produces sure certainly okay ok well"""
)
"""Filler before an answer in words: ``it is due to``, ``this is known as``, ``Sure!``"""

PREPOSITIONS: Final = _words("by in within from at on during for near around")
"""Words before a place, time or origin. ``of`` and ``with`` are missing because a second answer may follow them."""

CLAUSES: Final = _words("who which where whose when due to")
"""The first words of a descriptive or causal clause."""

EMPHASIS: Final = _words("really indeed certainly definitely absolutely truly surely")
"""Words that only emphasize a yes or no: ``No, certainly``."""

PRONOUNS: Final = _words("he she it they this")

PARTICIPLES: Final = _words("known used written born made found built drawn seen held")

ADVERBS: Final = _words("also often sometimes commonly usually first originally initially formally informally better")
"""Words before a participle: ``also known as``, ``first released``."""

NEGATIONS: Final = _words(
    """not no never none neither nor cannot without except isn't wasn't aren't weren't don't doesn't didn't can't won't
    wrong incorrect false untrue"""
)
"""Words that deny an answer."""

CONTRASTS: Final = _words("unlike opposed contrast contrary instead besides excluding")
"""Words that introduce what the answer is not: ``unlike X``, ``as opposed to X``."""

NUMBER_FILLERS: Final = FILLERS | _words(
    """total sum result value number amount altogether all together overall final equals equal he she they you have has
    had do does did will can need needs needed gets makes make made now left took takes
    take cost costs price pay pays paid these which us gives give gave means product multiplying adding dividing
    subtracting summing calculating solving
    typically usually normally generally"""
)
"""Filler beside a number. It has no words of comparison, rounding or counting."""

NUMBER_WORDS: Final = _words(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion
    lakh crore half halves third thirds quarter quarters fifth tenth double triple twice"""
)
"""Words for numbers, and words that multiply or divide a number."""

COMPARISONS: Final = _words("more less fewer greater larger smaller higher lower older younger")

NOT_UNITS: Final = (
    NUMBER_WORDS
    | COMPARISONS
    | _words(
        """dozen dozens score point plus minus times squared cubed factorial below above than under over about around
        nearly almost between to from and but if then per each other others bc ad k m b bn mn mio modulo mod percent
        percentage approximately roughly remainder through till until up down i e pi ago negative positive bce ce ah bp
        mil mill mills x y z n p q r loss losses short debt deficit off owed bps
        pair pairs couple couples hundreds thousands millions billions tenths hundredths thousandths
        too low high seems seem looks feels sounds appears hardly"""
    )
)
"""Words after a number that change its value or make it something other than a number."""

CURRENCIES: Final = "$\u20ac\u00a3\u00a5\u20b9\u20a9\u20bd\u20ba\u20aa\u20ab\u0e3f\u20b4\u20a6"
"""Currency signs. Each is a key of :data:`UNIT_NAMES`."""

APPROXIMATIONS: Final = _words("approximately approx")
"""Words that may precede a number if the answer is a rounded value. *About* and *roughly* may not."""

COPULAS: Final = _words("is are was were equals equal")
"""Words between the subject of a question and a number: ``the remainder is 5``."""

CIRCUMSTANCES: Final = _words("in after of for at on within during with when by")
"""Words that can show that the next number is not the answer, such as ``during`` in ``9 points during 40 minutes``."""

NAMELY: Final = _words("i.e i.e. ie namely which is that's")
"""Words between the label of a choice and its text."""

RATES: Final = _words("a an per each every one")

# These words change a number even if the question has them.
OPERATIONS: Final = _words("squared cubed plus minus factorial modulo mod point")
"""Words that change a number, such as ``squared`` in ``81 squared``."""


PERIODS: Final = MappingProxyType(
    {"hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month", "yearly": "year", "annual": "year"}
)
"""Adjectives that ask for a rate, and the period of that rate."""

IRREGULAR: Final = MappingProxyType(
    {
        form: verb
        for verb, _, forms in (
            entry.partition(":")
            for entry in _words(
                """spend:spent buy:bought sell:sold make:made eat:ate,eaten drink:drank,drunk run:ran drive:drove,driven
                give:gave,given get:got,gotten sleep:slept ride:rode,ridden write:wrote,written grow:grew,grown pay:paid
                leave:left fly:flew,flown swim:swam,swum build:built catch:caught find:found win:won begin:began,begun
                go:went,gone bring:brought send:sent keep:kept hold:held lose:lost feed:fed throw:threw,thrown
                take:took,taken see:saw,seen steal:stole,stolen break:broke,broken lay:laid have:had,has
                fall:fell,fallen rise:rose,risen become:became draw:drew,drawn know:knew,known speak:spoke,spoken
                sing:sang,sung lead:led fight:fought meet:met teach:taught say:said tell:told think:thought stand:stood
                sit:sat choose:chose,chosen wear:wore,worn shoot:shot lend:lent forget:forgot,forgotten bite:bit,bitten
                hide:hid,hidden ring:rang,rung sink:sank,sunk tear:tore,torn shake:shook,shaken hear:heard"""
            )
        )
        for form in forms.split(",")
    }
)
"""The verb for each irregular form, such as ``spend`` for ``spent``.

The question may have the verb (``How much did she spend?``), and the answer a form of it (``She spent $5.``).
"""

SCALES: Final = (
    _words("millisecond second minute hour day week fortnight month year decade century"),
    _words(
        """cent penny dollar buck euro yen pound rupee yuan franc peso krw ruble lira shekel dong baht hryvnia naira
        krona krone zloty rand cad aud nzd hkd sgd"""
    ),
    _words("nanometer micrometer millimeter centimeter decimeter meter kilometer inch foot yard mile"),
    _words("milligram gram kilogram ounce pound t ton tonne"),
    _words("milliliter centiliter liter teaspoon tablespoon cup pint quart gallon"),
    _words("celsius fahrenheit kelvin"),
)
"""The singular names of units, grouped by quantity: time, money, length, weight, volume and temperature."""

UNIT_NAMES: Final = MappingProxyType(
    {
        short: name
        for name, shorts in {
            "millisecond": "ms msec msecs",
            "second": "s sec secs",
            "minute": "min mins",
            "hour": "h hr hrs",
            "day": "d",
            "week": "wk wks",
            "year": "yr yrs",
            "century": "centuries",
            "penny": "pennies pence",
            "dollar": "$ usd",
            "euro": "\u20ac eur",
            "pound": "\u00a3 gbp lb lbs quid sterling",
            "yen": "\u00a5 jpy",
            "rupee": "\u20b9 inr rs",
            "yuan": "cny rmb",
            "franc": "chf",
            "krw": "\u20a9",
            "ruble": "\u20bd rub rouble",
            "lira": "\u20ba",
            "shekel": "\u20aa ils",
            "dong": "\u20ab vnd",
            "baht": "\u0e3f thb",
            "hryvnia": "\u20b4 uah",
            "naira": "\u20a6 ngn",
            "krona": "sek kronor",
            "krone": "dkk nok kroner",
            "zloty": "pln",
            "rand": "zar",
            "nanometer": "nm",
            "micrometer": "um \u03bcm",
            "millimeter": "mm millimetre millimetres",
            "centimeter": "cm centimetre centimetres",
            "decimeter": "dm decimetre decimetres",
            "meter": "m metre metres",
            "kilometer": "km kms kilometre kilometres",
            "inch": "inches",
            "foot": "feet ft",
            "yard": "yd yds",
            "mile": "mi",
            "milligram": "mg",
            "gram": "g",
            "kilogram": "kg kgs",
            "ounce": "oz",
            "milliliter": "ml millilitre millilitres",
            "centiliter": "cl centilitre centilitres",
            "liter": "l litre litres",
            "celsius": "\xb0c centigrade",
            "fahrenheit": "\xb0f",
            "kelvin": "\xb0k",
        }.items()
        for short in shorts.split()
    }
)
"""Short, irregular and British names of units, each with the name of the unit in :data:`SCALES`."""

DOUBTS: Final = _words(
    """wait actually sorry correction oops instead rather alternatively alternative reconsider reconsidering mistake
    mistaken scratch hmm unsure uncertain guess maybe perhaps possibly probably might could otherwise second another
    disregard ignore forget doubt doubtful allegedly supposedly presumably wrongly falsely mistakenly addition besides
    strike kidding joking joke revise revised misread apologies choose chose pick select"""
)
"""Words that express doubt or announce another answer."""

SHARED_WORDS: Final = _words("second another other could might may choose select instead rather otherwise")
"""Words of doubt that also occur in calculations: ``another 2 hours``."""

OTHER_ANSWERS: Final = _words("worst least misleading opposite lie half twice double triple nobody")
"""Words before a cue. The cue then announces something other than the final answer: ``the worst answer is``."""

VERDICTS: Final = _words("sure certain correct right true think believe answer answers option choice")
"""Words that, together with a negation, take an answer back: ``I am not sure``. Alone, they deny nothing."""

DISBELIEF: Final = _words(
    "wrong incorrect false untrue lie lies joke joking kidding misleading nonsense mistake mistaken"
)
"""Words of a sentence that announces an answer in order to deny it: ``It is a lie: the answer is``."""

ANNOUNCEMENTS: Final = _words("it it's this that that's following next below")
"""Words that refer to the answer below. In a denial, they show that this answer is denied: ``This is wrong:``."""

OTHER_CHOICES: Final = _words(
    "first second third fourth fifth last latter former other others next previous above below both all same"
)
"""Words that may refer to a choice without its label or text."""

REASONS: Final = _words("because since due reason explanation reasoning given using")
"""Words with which a sentence begins if it gives a reason."""

POLITE: Final = _words("hope helps help correct thanks thank let know questions")
"""Words of a polite closing line."""

POLARITY: Final = _words("do does did can could will would should may must")
"""Verbs that repeat a yes or no: ``No, it does not``."""

HEDGES: Final = _words("or either maybe perhaps possibly probably unless versus vs and/or")
"""Words that add a second answer, or weaken an answer."""
