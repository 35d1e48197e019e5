"""Sentences to vectors, by MiniLM-L6 in kopsd: an Encoder attaches the weights that load.py published.

Sentences are padded to one of a few lengths, and encoded in batches of a few sizes. For each length and size there is one
job: the whole model, which kopsd checks and plans once. To encode is to write token ids into the job's arrays and run it.

N. Reimers, I. Gurevych, "Sentence-BERT", 2019; W. Wang et al., "MiniLM", 2020.
"""
import numpy as np

from wordpiece import WordPiece

LAYERS, HEADS, WIDTH = 6, 12, 384
DEPTH = WIDTH // HEADS  # of a head
WIDE = 4 * WIDTH
EPS = 1e-12


class Encoder:
    def __init__(self, client, vocabulary, model="minilm", *, batches=(1, 8, 32), lengths=(16, 32, 64, 128, 256),
                 precision="f32"):
        """client: of kops.connect(), or the module kops; vocabulary: the file vocab.txt; model: the name of the weights.
        batches, lengths: what jobs are made for. precision: of products in f32, as for kops.matmul()."""
        self.client, self.model, self.precision = client, model, precision
        self.batches, self.lengths = sorted(batches), sorted(lengths)
        self.tokens = WordPiece(vocabulary)
        self._weights = {}
        words = self.weight("words")
        self.dtype = words.dtype
        # What layers hand on; the jobs of an Encoder run one after the other.
        self._scratch = client.device_array(self.batches[-1] * self.lengths[-1] * (2 * WIDTH + WIDE), words.dtype, words.device)
        self._jobs = {}

    def weight(self, name):
        if name not in self._weights:
            self._weights[name] = self.client.attach(f"{self.model}/{name}")
        return self._weights[name]

    def scratch(self, *extents):
        """Arrays of so many elements each."""
        ends = np.cumsum(extents)
        return [self._scratch[end - n:end] for n, end in zip(extents, ends)]

    def encode(self, sentences):
        """An array of a vector of length 1 for each sentence, in memory that ops use in place."""
        tokens = [self.tokens(s, self.lengths[-1]) for s in sentences]
        vectors = self.client.empty((len(tokens), WIDTH), self.dtype)
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        for first in range(0, len(order), self.batches[-1]):
            some = order[first:first + self.batches[-1]]
            vectors[some] = self._batch([tokens[i] for i in some])
        return vectors

    def search(self, sentences, corpus, k):
        """The k rows of corpus that are nearest to each sentence: (cosines, rows), the nearest first. corpus: vectors of
        sentences, best published on the device."""
        shape = (len(sentences), k)
        out = self.client.empty(shape), self.client.empty(shape, np.int32)  # or they would stay on the device as well
        return self.client.search(self.encode(sentences), corpus, k, out=out)

    def _batch(self, tokens):
        batch = next(n for n in self.batches if n >= len(tokens))
        length = next(n for n in self.lengths if n >= len(tokens[-1]))
        if (batch, length) not in self._jobs:
            self._jobs[batch, length] = BatchJob(self, batch, length)
        return self._jobs[batch, length].run(tokens)


class BatchJob:
    """Of one size and length."""

    def __init__(self, encoder, batch, length):
        client, dtype = encoder.client, encoder.dtype
        self.ids = client.zeros((batch, length), np.int32)
        self.lengths = client.zeros(batch, np.int32)
        self.mask = client.zeros((batch, 1, length), dtype)  # 1 for each token
        self.vectors = client.empty((batch, 1, WIDTH), dtype)
        self.job = client.job()
        self._add_model(encoder, batch, length)
        self.job.prepare()

    def _add_model(self, encoder, batch, length):
        j, weight, rows = self.job, encoder.weight, batch * length
        x, y, qkv, attended = encoder.scratch(*(rows * n for n in (WIDTH, WIDTH, 3 * WIDTH, WIDTH)))
        _, _, wide = encoder.scratch(*(rows * n for n in (WIDTH, WIDTH, WIDE)))  # where qkv and attended are
        x, y, qkv, wide = (z.reshape(rows, -1) for z in (x, y, qkv, wide))
        by_sentence = x.reshape(batch, length, WIDTH)
        q, k, v = (qkv.reshape(batch, length, 3 * HEADS, DEPTH)[:, :, i * HEADS:(i + 1) * HEADS].swapaxes(1, 2)
                   for i in range(3))
        heads = attended.reshape(batch, length, HEADS, DEPTH).swapaxes(1, 2)

        def linear(x, name, out, **more):
            j.matmul(x, weight(f"{name}.weight"), bias=weight(f"{name}.bias"), out=out, precision=encoder.precision, **more)

        def norm(x, name, residual, out):
            j.layer_norm(x, weight(f"{name}.weight"), weight(f"{name}.bias"), residual=residual, out=out, eps=EPS)

        j.gather(weight("words"), self.ids, out=by_sentence)
        norm(by_sentence, "norm", weight("positions")[:length], by_sentence)
        for i in range(LAYERS):
            linear(x, f"{i}.qkv", qkv)
            j.attention(q, k, v, lengths=self.lengths, out=heads)
            linear(attended.reshape(rows, WIDTH), f"{i}.attended", y)
            norm(y, f"{i}.attended.norm", x, x)
            linear(x, f"{i}.wide", wide, activation="gelu")
            linear(wide, f"{i}.narrow", y)
            norm(y, f"{i}.narrow.norm", x, x)
        total = y[:batch].reshape(batch, 1, WIDTH)  # along the mean of the tokens
        j.matmul(self.mask, by_sentence, out=total)
        j.rms_norm(total, weight("unit"), out=self.vectors, eps=0)

    def run(self, tokens):
        """The vectors of these sentences, until the next run."""
        self.ids.fill(0)
        self.mask.fill(0)
        for i in range(len(self.ids)):
            ids = tokens[i] if i < len(tokens) else [0]
            self.ids[i, :len(ids)] = ids
            self.lengths[i] = len(ids)
            self.mask[i, :, :len(ids)] = 1
        self.job.run()
        return self.vectors[:len(tokens), 0]
