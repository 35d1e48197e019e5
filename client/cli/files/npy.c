#include "files/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "files/element.h"

#define ACCEPTED "accepted are <f4, <f8 and <f2, written by a.astype('<f4')"

static const struct {
	kops_dtype dtype;
	const char *descr;
} descrs[] = {{KOPS_F32, "<f4"}, {KOPS_F64, "<f8"}, {KOPS_F16, "<f2"}};

/* The Python literal in the header, read from left to right. */
struct reader {
	const char *next, *end;
};

static char peek(struct reader *r)
{
	while (r->next < r->end && (*r->next == ' ' || *r->next == '\n' || *r->next == '\t'))
		r->next++;
	return r->next < r->end ? *r->next : '\0';
}

static bool take(struct reader *r, char c)
{
	if (peek(r) != c)
		return false;
	r->next++;
	return true;
}

/* A quoted string; no escapes, as NumPy's keys and dtypes have none. */
static bool read_text(struct reader *r, char *out, size_t size)
{
	char quote = peek(r);
	size_t n = 0;

	if (quote != '\'' && quote != '"')
		return false;
	for (r->next++; r->next < r->end && *r->next != quote; r->next++) {
		if (n + 1 == size || *r->next == '\\')
			return false;
		out[n++] = *r->next;
	}
	out[n] = '\0';
	return take(r, quote);
}

static bool read_word(struct reader *r, const char *word)
{
	size_t n = strlen(word);

	peek(r);
	if ((size_t)(r->end - r->next) < n || memcmp(r->next, word, n) != 0)
		return false;
	r->next += n;
	return true;
}

static bool read_count(struct reader *r, uint64_t *ret)
{
	uint64_t value = 0;
	char c = peek(r);

	if (c < '0' || c > '9')
		return false;
	for (; r->next < r->end && *r->next >= '0' && *r->next <= '9'; r->next++)
		if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*r->next - '0'), &value))
			return false;
	if (r->next < r->end && *r->next == 'L') /* Python 2 */
		r->next++;
	*ret = value;
	return true;
}

static int read_descr(struct reader *r, struct npy_header *h, char *why)
{
	char descr[32];

	if (peek(r) == '[')
		return why_invalid(why, "its dtype is a record; " ACCEPTED);
	if (!read_text(r, descr, sizeof(descr)))
		return why_invalid(why, "its .npy header is damaged: no dtype after 'descr'");
	for (size_t i = 0; i < sizeof(descrs) / sizeof(descrs[0]); i++) {
		if (strcmp(descr, descrs[i].descr) != 0)
			continue;
		h->dtype = descrs[i].dtype;
		return 0;
	}
	return why_invalid(why, "its dtype is '%s'%s; " ACCEPTED, descr, descr[0] == '>' ? ", big endian" : "");
}

static int read_order(struct reader *r, struct npy_header *h, char *why)
{
	h->fortran = read_word(r, "True");
	if (!h->fortran && !read_word(r, "False"))
		return why_invalid(why,
		                   "its .npy header is damaged: 'fortran_order' is neither True nor False");
	return 0;
}

static int read_shape(struct reader *r, struct npy_header *h, char *why)
{
	uint64_t extent;

	h->rank = 0;
	if (!take(r, '('))
		return why_invalid(why, "its .npy header is damaged: no '(' after 'shape'");
	while (!take(r, ')')) {
		if (!read_count(r, &extent))
			return why_invalid(
			    why, "its .npy header is damaged: 'shape' has no number where one belongs");
		if (h->rank == KOPS_RANK_MAX)
			return why_invalid(why, "it has more than %d dimensions", KOPS_RANK_MAX);
		h->shape[h->rank++] = extent;
		if (!take(r, ',') && peek(r) != ')')
			return why_invalid(why, "its .npy header is damaged: 'shape' does not end");
	}
	return 0;
}

static const struct {
	const char *key;
	int (*read)(struct reader *r, struct npy_header *h, char *why);
} keys[] = {{"descr", read_descr}, {"fortran_order", read_order}, {"shape", read_shape}};
#define N_KEYS (sizeof(keys) / sizeof(keys[0]))

static int read_pair(struct reader *r, struct npy_header *h, unsigned *seen, char *why)
{
	char key[32];
	size_t i = 0;

	if (!read_text(r, key, sizeof(key)) || !take(r, ':'))
		return why_invalid(why, "its .npy header is damaged: no key where one belongs");
	while (i < N_KEYS && strcmp(key, keys[i].key) != 0)
		i++;
	if (i == N_KEYS)
		return why_invalid(why, "its .npy header has an unknown key");
	if (*seen & 1u << i)
		return why_invalid(why, "its .npy header has '%s' twice", key);
	*seen |= 1u << i;
	return keys[i].read(r, h, why);
}

static int read_dictionary(struct reader *r, struct npy_header *h, char *why)
{
	unsigned seen = 0;

	if (!take(r, '{'))
		return why_invalid(why, "its .npy header is damaged: it does not start with '{'");
	while (!take(r, '}')) {
		int rc = read_pair(r, h, &seen, why);
		if (rc < 0)
			return rc;
		if (!take(r, ',') && peek(r) != '}')
			return why_invalid(why, "its .npy header is damaged: no ',' or '}' after a value");
	}
	if (seen != (1u << N_KEYS) - 1)
		return why_invalid(why, "its .npy header lacks 'descr', 'fortran_order' or 'shape'");
	return 0;
}

static int count_bytes(struct npy_header *h, char *why)
{
	if (h->rank == 0)
		h->shape[h->rank++] = 1;
	for (uint32_t d = 0; d < h->rank; d++)
		if (h->shape[d] > INT64_MAX / 8)
			return why_invalid(why, "its .npy header is damaged: an extent of %" PRIu64,
			                   h->shape[d]);
	if (element_bytes(h->dtype, h->rank, h->shape, &h->bytes))
		return 0;
	return why_invalid(why, "its .npy header is damaged: the shape has more bytes than a file can");
}

/* Where the dictionary lies. Version 1 has a 16-bit length, versions 2 and 3 a 32-bit one. */
static int find_dictionary(const unsigned char *bytes, size_t len, struct reader *ret, char *why)
{
	size_t start = NPY_MAGIC_BYTES + 2, length = 0, width;

	if (len < start || memcmp(bytes, NPY_MAGIC, NPY_MAGIC_BYTES) != 0)
		return why_invalid(
		    why, "it does not start as a .npy file does; raw elements belong in a file of another "
		         "name, such as .bin");
	int version = bytes[NPY_MAGIC_BYTES];
	if (version < 1 || version > 3)
		return why_invalid(why, "its .npy version is %d; versions 1 to 3 are known", version);
	width = version == 1 ? 2 : 4;
	if (len < start + width)
		return why_invalid(why, "its .npy header ends early");
	for (size_t i = width; i-- > 0;)
		length = length << 8 | bytes[start + i];
	start += width;
	if (length > NPY_HEADER_MAX - start)
		return why_invalid(why, "its .npy header has %zu bytes; at most %zu are read", length,
		                   NPY_HEADER_MAX - start);
	if (length > len - start)
		return why_invalid(why, "its .npy header ends early");
	ret->next = (const char *)bytes + start;
	ret->end = ret->next + length;
	return 0;
}

int npy_parse(const unsigned char *bytes, size_t len, struct npy_header *ret, char *why)
{
	struct npy_header h = {0};
	struct reader r;

	int rc = find_dictionary(bytes, len, &r, why);
	if (rc < 0)
		return rc;
	h.offset = (uint64_t)((const unsigned char *)r.end - bytes);
	rc = read_dictionary(&r, &h, why);
	if (rc < 0)
		return rc;
	rc = count_bytes(&h, why);
	if (rc < 0)
		return rc;
	*ret = h;
	return 0;
}

bool npy_is_name(const char *path)
{
	size_t n = strlen(path);

	return n >= 4 && strcmp(path + n - 4, ".npy") == 0;
}

static const char *descr_of(kops_dtype dtype)
{
	for (size_t i = 0; i < sizeof(descrs) / sizeof(descrs[0]); i++)
		if (descrs[i].dtype == dtype)
			return descrs[i].descr;
	return NULL;
}

size_t npy_format(kops_dtype dtype, uint32_t rank, const uint64_t *shape, char out[256])
{
	const size_t prefix = NPY_MAGIC_BYTES + 4;
	const char *descr = descr_of(dtype);
	size_t used;

	if (descr == NULL)
		return 0;
	memset(out, ' ', 256);
	memcpy(out, NPY_MAGIC "\x01\x00", NPY_MAGIC_BYTES + 2);
	used = prefix;
	used += (size_t)snprintf(out + used, 256 - used, "{'descr': '%s', 'fortran_order': False, 'shape': (",
	                         descr);
	for (uint32_t d = 0; d < rank; d++)
		used += (size_t)snprintf(out + used, 256 - used, d + 1 < rank ? "%" PRIu64 ", " : "%" PRIu64,
		                         shape[d]);
	used += (size_t)snprintf(out + used, 256 - used, "%s), }", rank == 1 ? "," : "");
	out[used] = ' '; /* over snprintf's NUL */
	size_t total = (used + 1 + 63) / 64 * 64;
	out[total - 1] = '\n';
	out[prefix - 2] = (char)((total - prefix) & 0xff);
	out[prefix - 1] = (char)((total - prefix) >> 8);
	return total;
}
