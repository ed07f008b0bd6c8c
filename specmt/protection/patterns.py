"""What must not be translated, by its looks: addresses, tags, placeholders, names of files, codes, and numbers."""

from __future__ import annotations

import re

from specmt.protection.spans import FRACTION

_IN_URL = r"[^\s<>\"'{}|\\^`()]"
_REST_OF_URL = (
    rf"(?:{_IN_URL}|\({_IN_URL}*\)|\((?!{_IN_URL}*\)))*"
    rf"(?:(?![.,;:!?\[\]]){_IN_URL}|\({_IN_URL}*\))"
)
_DOMAIN = r"\.(?:com|de|at|ch|eu|org|net|info|io|gov|edu|uk|fr|nl|pl)(?![\w@-]|\.\w)"
"""The end of a host's name without `www`, in small letters: domains that are no words of German or English."""
_RAISED = r"[\u00b2\u00b3\u00b9\u2070-\u207b]"
_RAISED_OR_LOWERED = r"[\u00b2\u00b3\u00b9\u2070-\u208b]"
_REFERENCE = r"\[\d{1,4}(?:(?:, ?|[-–])\d{1,4}){0,20}\]"
"""Numbers of references."""
FORMAT = r"[-+#0]{0,5}\d{0,4}(?:\.\d{1,4})?(?:ll?|h)?"
_CONVERSION = "[sdifgGxXeEuco@]"
_EXTENSION = (
    r"(?:7z|apk|avi|bak|bat|bmp|cfg|cmd|conf|cpp|cs[sv]|dll|dmg|docx?|eml|epub|exe|gif|gz|html?|ics|ini|iso|jar|java"
    r"|jpe?g|jsx?|json|lnk|log|mdx?|mkv|mov|mp[34]|msi|od[pst]|ogg|pdf|php|png|pptx?|psd|py|rar|rtf|sh|sql|svg|tar|tex|tiff?|toml|tsv"
    r"|tsx?|txt|wav|webp|xlsx?|xml|ya?ml|zip|DOCX?|EXE|HTML?|JPE?G|MP[34]|PDF|PNG|PPTX?|TXT|XLSX?|XML|ZIP)"
)
_NAME = r"\.?\w(?>(?:[\w.+@%~-]*[\w+@%~-])?)"
"""Of a file or folder."""
_COUNTED_IN = r"[cdkm]?m[\u00b2\u00b3]|[kMGT]?Hz|Nm"
"""Units that models do not keep."""
_CODES = (
    r"#[0-9A-Fa-f]{6}",  # a colour
    r"[A-Z]{1,3}\d{1,2}/\d{4}|[HQ][1-4]/\d\d",  # a quarter or week of a year
    r"(?=\d*[A-Z]\d*[A-Z])(?=[A-Z]*\d[A-Z]*\d)[A-Z\d]{4,}",
    r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    r"(?=[A-Za-z\d]{6})(?=\d*[A-Za-z]+\d+[A-Za-z])(?=[A-Za-z]*\d[A-Za-z]*\d)[A-Za-z\d]+",
    r"[vV]\d++(?>(?:\.\d++)+)(?:-[\w.]*\w)?|\d+\.\d+\.\d+-[A-Za-z][\w.]*",  # a version
    rf"[A-Za-z]{{1,3}}{_RAISED_OR_LOWERED}+[A-Za-z\d]{{0,4}}",  # `a²`, `H₂O`
    r"(?!eMails?\b)(?:[a-z]|mac|get|set|is|has|on|to)[A-Z][A-Za-z\d]+",  # `iPhone`, `getName`
    r"(?!\w*In(?:nen)?\b)[a-z]+(?:[A-Z][a-z\d]+){2,}",  # `aLongName`
    r"(?>(?:[A-Za-z]\w*\.)*)[A-Za-z]\w*\(\)|[A-Za-z]\w*(?>(?:::\w+)+)|:[a-z][a-z_]{1,30}:",
    r"__(?:all|call|class|dict|doc|enter|eq|exit|file|hash|init|iter|len|main|mocks|name|new|next|repr|str|tests)__",
    r"[A-Za-z](?!\w*_(?:innen\w*|in|[emnrs]|das|der|die)\b)[^\W_]*_\w*[^\W_]",  # `a_name`, not `Schüler_innen`
)
_OPTION = (
    r"(?<!\S)--(?!(?:aber|also|auch|d[aei][rs]|dann|die|ein|er|es|ich|mit|nicht|nur|oder|ohne|sie|so|und|wenn|wie|wir)\b)"
    r"[a-z]+(?>(?:-[a-z]+)*)(?=[\s=,.;:)]|$)"
)
"""Of a command; not a dash to which a word was written."""
_UNIT = r"x%|(?:(?:[KMGT]i?)?B|px|[kcm]?m|m?s|h)\b"
"""What may stand right behind `%s`, `%d` or `%f`; before another letter, that is no placeholder (`50 %ige`)."""
ENTITY = r"&(?:[A-Za-z]\w*|#\d+);"
PATTERNS = {
    "tag": (
        r"(?<!\\)(?:(?:\\[nrt]){2,}|\\[nrt](?=[A-ZÄÖÜ\d\s*_~`#\[-]|$))"  # not in `C:\neu`
        r"|\{\\[^{}\s]{1,40}\}"  # of subtitles
        r"|<!--(?:(?!<!--).)*?-->|</?[A-Za-z][\w:-]*(?:\s(?>(?>\"[^\"<]*\"|'[^'<]*'|[^<>])*))?/?>"
    ),
    "url": (
        rf"(?:(?i:https?|ftp|file)://|(?i:www)\.){_REST_OF_URL}"
        rf"|(?<![\w./@+-])\w[\w-]*(?:\.[\w-]+)*?{_DOMAIN}(?:(?::\d+)?/(?:{_REST_OF_URL})?)?"
    ),
    "email": r"(?<![\w.+-])(?:(?i:mailto):)?[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "placeholder": (
        r"\{\{[^{}]*\}\}|\$\{[^{}]*\}|%\{[^{}]*\}|\{%[^{}]*%\}"
        r"|\{\s?[\w.\[\]#-]*(?:![rsa])?(?::[^{}\s]*)?\s?\}"
        rf"|(?<![\d%])%(?:(?:\(\w+\)|\d{{1,3}}\$){FORMAT}{_CONVERSION}"
        rf"|{FORMAT}(?:{_CONVERSION}(?!\w)|[sdf](?={_UNIT})))(?:%%)?"
        r"|(?<![\w%])%[A-Z_][A-Z0-9_]*%|(?<![\w%])%\d+(?!\w)|\$[A-Za-z_]\w*(?:/[\w.+@~-]*\w)*"
        rf"|{ENTITY}"
        r"|(?<![\w`\\])(?:`(?![\s`])[^`]{1,1000}(?<=\S)`|``(?!`)(?>(?:[^`]|`(?!`)){1,1000})``)(?![\w`])"
        r"|(?<![\w.,])\d++(?>(?:[.,]\d++)*)%%|%%"
    ),
    "file": (
        r"(?<![\w/\\.~+-])(?:"
        rf"(?:[A-Za-z]:\\|\\\\(?=\w)|~/|\.{{1,2}}[/\\](?=\w))(?>(?:{_NAME}(?:(?: {_NAME}){{0,3}}\\|/))*(?:{_NAME})?)"
        rf"|(?!(?:/[A-ZÄÖÜ][a-zäöüß]+)+(?![\w./]))(?>(?:/{_NAME}){{2,}})/?"  # not `/Vater/Kind`
        rf"|[.\w](?>[\w.+~/\\-]*?\.{_EXTENSION}(?!\w|\.\w|-\w)))"
    ),
    "code": rf"(?<![\w#&])(?:{'|'.join(_CODES)})(?!\w)|{_OPTION}",
    "number": (
        rf"{_REFERENCE}"
        r"|(?<![\w.,])(?<!\d[:/])(?:\d++(?>(?:[.,:/]\d++|['’]\d{3}(?!\d))+)[^\W\d_]{0,4}+"
        rf"|\d++(?:{FRACTION}|{_RAISED}++)?(?![.,:/]\d)|{FRACTION})"
        rf"(?:[ \u00a0]?(?:{_COUNTED_IN})(?!\w)|(?!\w))"
    ),
}
"""What is found takes time in proportion to the line: no pattern begins anew within what another try has read.

Groups are repeated in `(?>…)`, not by `*+` or `++`: those take in a part of one repetition too many in Python 3.11.2,
that of Debian 12 (python/cpython#106052).
"""
TRIGGER = re.compile(
    rf"[\d\\<@{{%$&#_`]|{FRACTION}|{_RAISED_OR_LOWERED}|://|\.[A-Za-z]|/\.?\w|\(\)|--[a-z]|[a-z][A-Z]|:[:a-z]"
)
"""What stands in every span but a term; a line without is told from others fast."""
