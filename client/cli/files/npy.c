#include "files/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "files/element.h"

/* The part of a dtype after its byte order. */
static const struct {
	kops_dtype dtype;
	const char *descr;
} descrs[] = {{KOPS_F32, "f4"}, {KOPS_F64, "f8"}, {KOPS_F16, "f2"},  {KOPS_BF16, "V2"},
              {KOPS_I32, "i4"}, {KOPS_C64, "c8"}, {KOPS_C128, "c16"}};
#define N_DESCRS (sizeof(descrs) / sizeof(descrs[0]))

/* Dtypes that NumPy also saves, with advice: converting them would lose something. */
static const struct {
	const char *kinds; /* NumPy's letters */
	const char *hint;
} refused[] = {
    {"b", "truth values; save a.astype('f4')"},
    {"iu", "integers, of which only i4 are read; save a.astype('f4'), which is exact up to 2^24, or "
           "a.astype('f8'), up to 2^53"},
    {"f", "floats of another size; save a.astype('f8'), which rounds them"},
    {"c", "complex numbers of another size; save a.astype('c16'), which rounds them"},
    {"O", "Python objects; make an array of numbers of them and save that"},
    {"US", "text; make an array of numbers of it and save that"},
    {"mM", "times; make an array of numbers of them and save that"},
    {"V", "bytes without a type; make an array of numbers of them and save that"},
};
#define N_REFUSED (sizeof(refused) / sizeof(refused[0]))

static int damaged(char *why, const char *how)
{
	return why_invalid(why, "its .npy header is damaged: %s", how);
}

/* ---- the Python literal in the header, read from left to right ---- */

static bool take(const char **at, const char *word)
{
	size_t n = strlen(word);

	*at += strspn(*at, " \n\t");
	if (strncmp(*at, word, n) != 0)
		return false;
	*at += n;
	return true;
}

/* Reads a quoted string, without escapes: NumPy's keys and dtypes have none. */
static bool read_text(const char **at, char *out, size_t size)
{
	const char *quote = take(at, "'") ? "'" : "\"";

	if (*quote == '"' && !take(at, quote))
		return false;
	size_t n = strcspn(*at, quote);
	if (n >= size || memchr(*at, '\\', n))
		return false;
	memcpy(out, *at, n);
	out[n] = '\0';
	*at += n;
	return take(at, quote);
}

static bool read_count(const char **at, uint64_t *ret)
{
	char *end;

	take(at, "");
	if (**at < '0' || **at > '9')
		return false;
	errno = 0;
	*ret = strtoull(*at, &end, 10);
	*at = *end == 'L' ? end + 1 : end; /* Python 2 wrote 3L */
	return errno == 0;
}

static int refuse_descr(const char *descr, char *why)
{
	size_t i = 0;

	while (i < N_REFUSED && (!descr[0] || !descr[1] || !strchr(refused[i].kinds, descr[1])))
		i++;
	if (i == N_REFUSED)
		return why_invalid(why, "its dtype is '%s'; f4, f8, f2, i4, c8 and c16 are read", descr);
	return why_invalid(why, "its dtype is '%s': %s", descr, refused[i].hint);
}

static int read_descr(const char **at, struct npy_header *h, char *why)
{
	char descr[32];

	if (take(at, "["))
		return why_invalid(why, "its dtype is a record; save one field of it: a['NAME']");
	if (!read_text(at, descr, sizeof(descr)))
		return damaged(why, "no dtype after 'descr'");
	h->is_swapped = descr[0] == '>';
	for (size_t i = 0; i < N_DESCRS && descr[0] && strchr("<>|", descr[0]); i++) {
		h->dtype = descrs[i].dtype;
		h->is_untyped = h->dtype == KOPS_BF16;
		if ((descr[0] != '|' || h->is_untyped) && strcmp(descr + 1, descrs[i].descr) == 0)
			return 0;
	}
	return refuse_descr(descr, why);
}

static int read_order(const char **at, struct npy_header *h, char *why)
{
	h->fortran = take(at, "True");
	return h->fortran || take(at, "False") ? 0 : damaged(why, "'fortran_order' is neither True nor False");
}

static int read_shape(const char **at, struct npy_header *h, char *why)
{
	uint64_t extent;

	if (!take(at, "("))
		return damaged(why, "no '(' after 'shape'");
	for (h->rank = 0; !take(at, ")"); h->rank++) {
		if (!read_count(at, &extent))
			return damaged(why, "'shape' lacks a number");
		if (h->rank == KOPS_RANK_MAX)
			return why_invalid(why, "it has more than %d dimensions", KOPS_RANK_MAX);
		if (extent > INT64_MAX / 16)
			return damaged(why, "an extent exceeds the size of any file");
		h->shape[h->rank] = extent;
		if (!take(at, ",") && **at != ')')
			return damaged(why, "'shape' does not end");
	}
	if (h->rank == 0)
		h->shape[h->rank++] = 1;
	return 0;
}

static const struct {
	const char *key;
	int (*read)(const char **at, struct npy_header *h, char *why);
} keys[] = {{"descr", read_descr}, {"fortran_order", read_order}, {"shape", read_shape}};
#define N_KEYS (sizeof(keys) / sizeof(keys[0]))

static int read_pair(const char **at, struct npy_header *h, unsigned *seen, char *why)
{
	char key[32];
	size_t i = 0;

	if (!read_text(at, key, sizeof(key)) || !take(at, ":"))
		return damaged(why, "a key is missing");
	while (i < N_KEYS && strcmp(key, keys[i].key) != 0)
		i++;
	if (i == N_KEYS)
		return why_invalid(why, "its .npy header has an unknown key");
	if (*seen & 1u << i)
		return why_invalid(why, "its .npy header has '%s' twice", key);
	*seen |= 1u << i;
	return keys[i].read(at, h, why);
}

static int read_dictionary(const char *at, struct npy_header *h, char *why)
{
	unsigned seen = 0;

	if (!take(&at, "{"))
		return damaged(why, "it does not start with '{'");
	while (!take(&at, "}")) {
		int rc = read_pair(&at, h, &seen, why);
		if (rc < 0)
			return rc;
		if (!take(&at, ",") && *at != '}')
			return damaged(why, "no ',' or '}' after a value");
	}
	if (seen != (1u << N_KEYS) - 1)
		return why_invalid(why, "its .npy header lacks 'descr', 'fortran_order' or 'shape'");
	if (!element_bytes(h->dtype, h->rank, h->shape, &h->bytes))
		return damaged(why, "the shape exceeds the size of any file");
	return 0;
}

/* ---- the whole ---- */

/* Finds the dictionary. Its length has 16 bits in version 1, and 32 bits in versions 2 and 3. */
static int find_dictionary(const unsigned char *bytes, size_t len, size_t *ret_start, size_t *ret_length,
                           char *why)
{
	size_t start = NPY_MAGIC_BYTES + 2, length = 0;

	if (len < start || memcmp(bytes, NPY_MAGIC, NPY_MAGIC_BYTES) != 0)
		return why_invalid(why, "it does not begin with the magic string of .npy; raw elements belong "
		                        "in a file of another name, such as .bin");
	int version = bytes[NPY_MAGIC_BYTES];
	if (version < 1 || version > 3)
		return why_invalid(why, "its .npy version is %d; versions 1 to 3 are known", version);
	size_t width = version == 1 ? 2 : 4;
	for (size_t i = width; i-- > 0 && len >= start + width;)
		length = length << 8 | bytes[start + i];
	start += width;
	if (length > NPY_HEADER_MAX - start)
		return why_invalid(why, "its .npy header has %zu bytes; at most %zu are read", length,
		                   NPY_HEADER_MAX - start);
	if (len < start || length > len - start)
		return why_invalid(why, "its .npy header is truncated");
	*ret_start = start;
	*ret_length = length;
	return 0;
}

int npy_parse(const unsigned char *bytes, size_t len, struct npy_header *ret, char *why)
{
	struct npy_header h = {0};
	char text[NPY_HEADER_MAX + 1];
	size_t start = 0, length = 0;

	int rc = find_dictionary(bytes, len, &start, &length, why);
	if (rc < 0)
		return rc;
	memcpy(text, bytes + start, length);
	text[length] = '\0';
	h.offset = start + length;
	rc = read_dictionary(text, &h, why);
	if (rc == 0)
		*ret = h;
	return rc;
}

bool npy_is_name(const char *path)
{
	size_t n = strlen(path);

	return n >= 4 && strcmp(path + n - 4, ".npy") == 0;
}

static const char *descr_of(kops_dtype dtype)
{
	for (size_t i = 0; i < N_DESCRS; i++)
		if (descrs[i].dtype == dtype)
			return descrs[i].descr;
	return "";
}

size_t npy_format(kops_dtype dtype, uint32_t rank, const uint64_t *shape, char out[256])
{
	const size_t prefix = NPY_MAGIC_BYTES + 4;
	const char *descr = descr_of(dtype);
	size_t used;

	memset(out, ' ', 256);
	memcpy(out, NPY_MAGIC "\x01\x00", NPY_MAGIC_BYTES + 2);
	used = prefix;
	used += (size_t)snprintf(out + used, 256 - used, "{'descr': '<%s', 'fortran_order': False, 'shape': (",
	                         descr);
	for (uint32_t d = 0; d < rank; d++)
		used += (size_t)snprintf(out + used, 256 - used, d + 1 < rank ? "%" PRIu64 ", " : "%" PRIu64,
		                         shape[d]);
	used += (size_t)snprintf(out + used, 256 - used, "%s), }", rank == 1 ? "," : "");
	out[used] = ' '; /* replaces snprintf's NUL */
	size_t total = (used + 1 + 63) / 64 * 64;
	out[total - 1] = '\n';
	out[prefix - 2] = (char)((total - prefix) & 0xff);
	out[prefix - 1] = (char)((total - prefix) >> 8);
	return total;
}
