#include "files/safetensors.h"

#include <string.h>

#include "options.h"

#define LENGTH_BYTES 8
#define DEPTH_MAX    16 /* of values that are skipped */

/* Types of the format, with the bytes of an element, in eighths for types below a byte. */
static const struct {
	const char *name;
	unsigned bits;
	kops_dtype dtype;
} types[] = {{"F64", 64, KOPS_F64}, {"F32", 32, KOPS_F32}, {"F16", 16, KOPS_F16}, {"BF16", 16, KOPS_BF16},
             {"I32", 32, KOPS_I32}, {"C64", 64, KOPS_C64}, {"I64", 64, 0},        {"U64", 64, 0},
             {"U32", 32, 0},        {"I16", 16, 0},        {"U16", 16, 0},        {"I8", 8, 0},
             {"U8", 8, 0},          {"BOOL", 8, 0},        {"F8_E4M3", 8, 0},     {"F8_E5M2", 8, 0},
             {"F8_E8M0", 8, 0},     {"F6_E2M3", 6, 0},     {"F6_E3M2", 6, 0},     {"F4", 4, 0}};
#define N_TYPES (sizeof(types) / sizeof(types[0]))

/* ---- JSON, read from left to right ---- */

struct text {
	const unsigned char *at, *end;
	char *why;
};

static int damaged(const struct text *t, const char *how)
{
	return why_invalid(t->why, "its safetensors header is damaged: %s", how);
}

static void skip_blanks(struct text *t)
{
	while (t->at < t->end && strchr(" \t\r\n", *t->at) && *t->at)
		t->at++;
}

/* Returns true, and goes past it, if the next character is this one. */
static bool take(struct text *t, char c)
{
	skip_blanks(t);
	if (t->at == t->end || *t->at != (unsigned char)c)
		return false;
	t->at++;
	return true;
}

/* What a backslash and this character stand for; 0: nothing that a name may have. */
static char unescaped(unsigned char c)
{
	return c == '/' || c == '\\' || c == '"' ? (char)c : '\0';
}

/* Reads a string into out. What does not fit is refused; with out NULL any string is read. */
static int read_string(struct text *t, char *out, size_t size)
{
	size_t n = 0;

	if (!take(t, '"'))
		return damaged(t, "a string is missing");
	while (t->at < t->end && *t->at != '"') {
		unsigned char c = *t->at++;
		if (c == '\\') {
			if (t->at == t->end)
				break;
			c = out ? (unsigned char)unescaped(*t->at) : 'x';
			t->at++;
		}
		if (out && (c < 0x20 || n + 1 >= size))
			return why_invalid(t->why,
			                   "it has a name of more than %zu characters, or with characters "
			                   "that are escaped",
			                   size - 1);
		if (out)
			out[n++] = (char)c;
	}
	if (t->at == t->end)
		return damaged(t, "a string does not end");
	t->at++;
	if (out)
		out[n] = '\0';
	return 0;
}

static int read_count(struct text *t, uint64_t *ret)
{
	uint64_t value = 0;

	skip_blanks(t);
	if (t->at == t->end || *t->at < '0' || *t->at > '9')
		return damaged(t, "a number is missing");
	while (t->at < t->end && *t->at >= '0' && *t->at <= '9')
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*t->at++ - '0'), &value))
			return damaged(t, "a number is too large");
	*ret = value;
	return 0;
}

/* Reads numbers in brackets, at most `most`. */
static int read_counts(struct text *t, uint64_t *out, uint32_t most, uint32_t *ret_n)
{
	uint32_t n = 0;

	if (!take(t, '['))
		return damaged(t, "a list is missing");
	if (take(t, ']')) {
		*ret_n = 0;
		return 0;
	}
	do {
		if (n == most)
			return damaged(t, "a list is too long");
		int rc = read_count(t, &out[n]);
		if (rc < 0)
			return rc;
		n++;
	} while (take(t, ','));
	*ret_n = n;
	return take(t, ']') ? 0 : damaged(t, "a list does not end");
}

/* Skips a value of any kind, in constant space. */
static int skip_value(struct text *t)
{
	unsigned depth = 0;

	do {
		skip_blanks(t);
		if (t->at == t->end)
			return damaged(t, "it ends within a value");
		switch (*t->at) {
		case '"':
			if (read_string(t, NULL, 0) < 0)
				return KOPS_E_INVALID;
			break;
		case '{':
		case '[':
			if (++depth > DEPTH_MAX)
				return damaged(t, "its values are nested too deeply");
			t->at++;
			break;
		case '}':
		case ']':
			if (depth == 0)
				return damaged(t, "a value is missing");
			depth--;
			t->at++;
			break;
		default:
			t->at++;
		}
	} while (depth > 0 || (t->at < t->end && !strchr(",}", *t->at)));
	return 0;
}

/* ---- Tensors ---- */

struct header {
	struct text text;
	uint64_t data, data_bytes; /* where the data begin in the file, and how many there are */
};

enum { HAS_TYPE = 1, HAS_SHAPE = 2, HAS_PLACE = 4, HAS_ALL = 7 };

/* One member of a tensor's object. Others than these three are skipped. */
static int read_member(struct header *h, struct safetensor *t, uint64_t place[2], unsigned *has)
{
	char key[SAFETENSORS_NAME_BYTES];
	unsigned what = 0;
	uint32_t n = 0;
	int rc = read_string(&h->text, key, sizeof(key));

	if (rc < 0 || !take(&h->text, ':'))
		return rc < 0 ? rc : damaged(&h->text, "no ':' after a name");
	if (strcmp(key, "dtype") == 0) {
		what = HAS_TYPE;
		rc = read_string(&h->text, t->type, sizeof(t->type));
	} else if (strcmp(key, "shape") == 0) {
		what = HAS_SHAPE;
		rc = read_counts(&h->text, t->shape, SAFETENSORS_RANK_MAX, &t->rank);
	} else if (strcmp(key, "data_offsets") == 0) {
		what = HAS_PLACE;
		rc = read_counts(&h->text, place, 2, &n);
		if (rc == 0 && n != 2)
			rc = damaged(&h->text, "'data_offsets' lacks a number");
	} else {
		rc = skip_value(&h->text);
	}
	if (rc == 0 && (*has & what))
		rc = damaged(&h->text, "a tensor has a member twice");
	*has |= what;
	return rc;
}

/* The bytes of a tensor of this type and shape. False: more than a file could have, or an unknown type. */
static bool bytes_of(struct safetensor *t, uint64_t *ret)
{
	uint64_t bits = 0;
	size_t i = 0;

	while (i < N_TYPES && strcmp(types[i].name, t->type) != 0)
		i++;
	if (i == N_TYPES)
		return false;
	bits = types[i].bits;
	t->dtype = types[i].dtype;
	for (uint32_t d = 0; d < t->rank; d++)
		if (t->shape[d] == 0) {
			*ret = 0;
			return true;
		}
	for (uint32_t d = 0; d < t->rank; d++)
		if (__builtin_mul_overflow(bits, t->shape[d], &bits))
			return false;
	*ret = bits / 8;
	return bits % 8 == 0;
}

static int place_tensor(const struct header *h, struct safetensor *t, const uint64_t place[2])
{
	uint64_t bytes;

	if (!bytes_of(t, &bytes))
		return why_invalid(h->text.why,
		                   "its tensor %.100s has the type %s, which is unknown, or a shape that "
		                   "exceeds any file",
		                   t->name, t->type);
	if (place[0] > place[1] || place[1] > h->data_bytes)
		return why_invalid(
		    h->text.why, "it is cut short, or damaged: its tensor %.100s lies beyond its end", t->name);
	if (place[1] - place[0] != bytes)
		return why_invalid(
		    h->text.why,
		    "its safetensors header is damaged: tensor %.100s has another size than its shape",
		    t->name);
	t->offset = h->data + place[0];
	t->bytes = bytes;
	return 0;
}

static int read_tensor(struct header *h, struct safetensor *t)
{
	uint64_t place[2];
	unsigned has = 0;

	if (!take(&h->text, '{'))
		return damaged(&h->text, "a tensor is no object");
	do {
		int rc = read_member(h, t, place, &has);
		if (rc < 0)
			return rc;
	} while (take(&h->text, ','));
	if (!take(&h->text, '}') || has != HAS_ALL)
		return damaged(&h->text, "a tensor lacks 'dtype', 'shape' or 'data_offsets'");
	return place_tensor(h, t, place);
}

static int read_entry(struct header *h, int (*visit)(const struct safetensor *tensor, void *user), void *user)
{
	struct safetensor t = {.rank = 0};
	int rc = read_string(&h->text, t.name, sizeof(t.name));

	if (rc < 0 || !take(&h->text, ':'))
		return rc < 0 ? rc : damaged(&h->text, "no ':' after a name");
	if (strcmp(t.name, "__metadata__") == 0)
		return skip_value(&h->text);
	rc = read_tensor(h, &t);
	return rc < 0 ? rc : visit(&t, user);
}

int safetensors_read(const unsigned char *file, uint64_t len,
                     int (*visit)(const struct safetensor *tensor, void *user), void *user, char *why)
{
	struct header h = {.text = {.why = why}};
	uint64_t header = 0;

	for (unsigned i = LENGTH_BYTES; i-- > 0 && len >= LENGTH_BYTES;)
		header = header << 8 | file[i];
	if (len < LENGTH_BYTES || header > len - LENGTH_BYTES)
		return why_invalid(why, "it is no safetensors file, or cut short");
	if (header > SAFETENSORS_HEADER_MAX)
		return why_invalid(why, "its safetensors header has %llu bytes; at most %u are read",
		                   (unsigned long long)header, SAFETENSORS_HEADER_MAX);
	h.text.at = file + LENGTH_BYTES;
	h.text.end = h.text.at + header;
	h.data = LENGTH_BYTES + header;
	h.data_bytes = len - h.data;
	if (!take(&h.text, '{'))
		return damaged(&h.text, "it does not start with '{'");
	if (!take(&h.text, '}')) {
		do {
			int rc = read_entry(&h, visit, user);
			if (rc < 0)
				return rc;
		} while (take(&h.text, ','));
		if (!take(&h.text, '}'))
			return damaged(&h.text, "no ',' or '}' after a tensor");
	}
	skip_blanks(&h.text);
	return h.text.at == h.text.end ? 0 : damaged(&h.text, "something follows its last '}'");
}

bool safetensors_is_name(const char *path)
{
	static const char end[] = ".safetensors";
	size_t n = strlen(path);

	return n >= sizeof(end) - 1 && strcmp(path + n - (sizeof(end) - 1), end) == 0;
}
