"""Sentences to token ids, as BERT's uncased models have them: WordPiece.

    wordpiece.py VOCABULARY < sentences     the ids of each line, for embed.c

J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2018.
"""
import functools
import sys
import unicodedata

WORD_MAX = 100  # characters; longer words are unknown
IDEOGRAPHS = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
              (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


def _stands_alone(c):
    """Whether it is a word by itself: punctuation, all of ASCII that is no letter and no number, and ideographs."""
    is_ascii_sign = "!" <= c <= "~" and not c.isalnum()
    return is_ascii_sign or unicodedata.category(c)[0] == "P" or any(a <= ord(c) <= z for a, z in IDEOGRAPHS)


@functools.lru_cache(maxsize=None)
def _plain(c):
    """What becomes of a character: small letters without accents, and blanks around what stands alone."""
    if c in "\t\n\r":
        return " "
    if c == "\ufffd" or unicodedata.category(c) in ("Cc", "Cf", "Co"):
        return ""
    letters = (x.lower() for x in unicodedata.normalize("NFD", c) if unicodedata.category(x) != "Mn")
    return "".join(f" {x} " if _stands_alone(x) else x for x in letters)


class WordPiece:
    def __init__(self, vocabulary):
        """vocabulary: a file with a token a line; a token's id is its line."""
        with open(vocabulary, encoding="utf-8") as f:
            self._ids = {line.rstrip("\n"): i for i, line in enumerate(f)}
        self._pieces = functools.lru_cache(1 << 16)(self._pieces)

    def __call__(self, sentence, limit=256):
        """Its ids, at most so many, between those of [CLS] and [SEP]."""
        pieces = [piece for word in "".join(map(_plain, sentence)).split() for piece in self._pieces(word)]
        return [self._ids["[CLS]"], *pieces[:limit - 2], self._ids["[SEP]"]]

    def _pieces(self, word):
        """The longest piece that is in the vocabulary, and so on behind it; [UNK] if that leads nowhere."""
        ids, begin = [], 0
        while begin < len(word) <= WORD_MAX:
            mark = "##" if begin else ""
            end = next((end for end in range(len(word), begin, -1) if mark + word[begin:end] in self._ids), None)
            if end is None:
                break
            ids.append(self._ids[mark + word[begin:end]])
            begin = end
        return ids if begin == len(word) else [self._ids["[UNK]"]]


if __name__ == "__main__":
    tokens = WordPiece(sys.argv[1])
    for line in sys.stdin:
        print(*tokens(line))
