#include "files/foreign.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli.h"

#define TEXT_BYTES 4096 /* examined for text */

struct format {
	const char *ending; /* end of such files' names, in any case; "": names do not tell */
	const char *is;
	const char *module; /* Python module needed beside numpy; "": none */
	const char *before,
	    *after;        /* Python code around the file's name; NULL: unpack it first. %s: a member */
	const char *note;  /* advice to add; may have a %s for the file's name */
	const char *magic; /* how such files begin, with ANY for any byte; NULL: they begin in many ways */
	size_t magic_bytes;
};

/*
 * A magic of at least four known bytes. Raw elements may begin with any bytes: four refuse one random file in
 * four thousand million. As numbers, most magics are far from what matrices hold.
 */
#define MAGIC(bytes) bytes, sizeof(bytes) - 1
#define NO_MAGIC     NULL, 0
#define ANY          '?'
#define PICKLE       "a pickle", ", pickle", "pickle.load(open(", ", 'rb'))", TRUST
#define HDF5         "an HDF5 file", ", h5py", "h5py.File(", ")['%s'][:]", "; h5py.File('%s').keys() has the names"
#define TRUST        "; only if you trust the file, as its reading may run what it holds"
#define UNPACK       NULL, NULL, ""

static const struct format formats[] = {
    {".csv", "comma-separated text", "", "numpy.loadtxt(", ", delimiter=',')", "", NO_MAGIC},
    {".tsv", "text with tabs", "", "numpy.loadtxt(", ", delimiter='\\t')", "", NO_MAGIC},
    {".txt", "text", "", "numpy.loadtxt(", ")", "", NO_MAGIC},
    {".npz", "an archive of arrays", "", "numpy.load(", ")['%s']", "; numpy.load('%s').files has the names",
     MAGIC("PK\x03\x04")},
    {".json", "JSON", ", json", "json.load(open(", "))", "", NO_MAGIC},
    {".mat", "a MATLAB file", ", scipy.io", "scipy.io.loadmat(", ")['%s']",
     "; scipy.io.whosmat('%s') has the names", MAGIC("MATLAB 5.0 MAT-file")},
    {".h5", HDF5, MAGIC("\x89HDF\r\n\x1a\n")},
    {".hdf5", HDF5, NO_MAGIC},
    {".parquet", "a Parquet table", ", pandas", "pandas.read_parquet(", ")", "", MAGIC("PAR1")},
    {".pt", "a PyTorch file", ", torch", "torch.load(", ")", TRUST, MAGIC("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46")},
    {".pth", "a PyTorch file", ", torch", "torch.load(", ")", TRUST, NO_MAGIC},
    /* The protocol's number is followed by an array, a list or a dict or, since 4, by a length below 4 GiB. */
    {".pkl", PICKLE, MAGIC("\200\2cnumpy")},
    {".pickle", PICKLE, MAGIC("\200\3cnumpy")},
    {"", PICKLE, MAGIC("\200\2?q\0")},
    {"", PICKLE, MAGIC("\200\3?q\0")},
    {"", PICKLE, MAGIC("\200\4\x95????\0\0\0\0")},
    {"", PICKLE, MAGIC("\200\5\x95????\0\0\0\0")},
    {".zip", "a zip archive", "", UNPACK, NO_MAGIC},
    {".tar", "a tar archive", "", UNPACK, NO_MAGIC},
    {".gz", "compressed data", "", UNPACK, MAGIC("\x1f\x8b\x08\0")}, /* without a name in it */
    {"", "compressed data", "", UNPACK, MAGIC("\x1f\x8b\x08\x08")},  /* with a name */
    {".bz2", "compressed data", "", UNPACK, MAGIC("BZh91AY&SY")},
    {".xz", "compressed data", "", UNPACK, MAGIC("\3757zXZ")},
    {".zst", "compressed data", "", UNPACK, MAGIC("\x28\xb5\x2f\xfd")},
};
#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

/* Encodings of text, recognized by the byte order mark. */
static const struct encoding {
	const char *mark;
	size_t mark_bytes;
	bool is_wide; /* all but one byte of an ASCII character are 0 */
	const char *read_as;
} encodings[] = {
    {MAGIC("\xff\xfe\0\0"), true, ", encoding='utf-32'"},
    {MAGIC("\0\0\xfe\xff"), true, ", encoding='utf-32'"},
    {MAGIC("\xff\xfe"), true, ", encoding='utf-16'"},
    {MAGIC("\xfe\xff"), true, ", encoding='utf-16'"},
    {MAGIC("\xef\xbb\xbf"), false, ", encoding='utf-8-sig'"},
    {MAGIC(""), false, ""}, /* last: every file begins so */
};

/* The format of a file, and how Python learns the encoding of text. */
struct finding {
	const struct format *format; /* NULL: elements */
	const char *read_as;
};

static bool ends_with(const char *path, const char *ending)
{
	size_t n = strlen(path), m = strlen(ending);

	return n >= m && strcasecmp(path + n - m, ending) == 0;
}

static const struct format *by_name(const char *path)
{
	for (size_t i = 0; i < N_FORMATS; i++)
		if (formats[i].ending[0] && ends_with(path, formats[i].ending))
			return &formats[i];
	return NULL;
}

static bool begins_with(const unsigned char *head, size_t len, const char *magic, size_t magic_bytes)
{
	if (magic == NULL || len < magic_bytes)
		return false;
	for (size_t i = 0; i < magic_bytes; i++)
		if (magic[i] != ANY && head[i] != (unsigned char)magic[i])
			return false;
	return true;
}

static bool is_printable(unsigned char c)
{
	return (c >= 0x20 && c <= 0x7e) || (c >= '\t' && c <= '\r');
}

/*
 * Returns true for text. Elements can be printable by chance, or by rule, such as bf16 from 10 to 15. So text
 * must also have several lines, or nothing but numbers.
 */
static bool is_text(const unsigned char *head, size_t len)
{
	bool lines = false, numbers = true;

	for (size_t i = 0; i < len; i++) {
		if (!is_printable(head[i]))
			return false;
		lines |= head[i] == '\n';
		numbers &= strchr("0123456789+-.,;eE[](){} \t\r\n", head[i]) != NULL;
	}
	return len > 0 && (lines || numbers);
}

static const struct encoding *find_encoding(const unsigned char *head, size_t len)
{
	const struct encoding *e = encodings;

	while (!begins_with(head, len, e->mark, e->mark_bytes))
		e++;
	return e;
}

static struct finding by_content(const unsigned char *head, size_t len)
{
	const struct encoding *e = find_encoding(head, len);
	unsigned char text[TEXT_BYTES];
	size_t n = 0;

	for (size_t i = 0; i < N_FORMATS; i++)
		if (begins_with(head, len, formats[i].magic, formats[i].magic_bytes))
			return (struct finding){&formats[i], ""};
	for (size_t i = e->mark_bytes; i < len && n < TEXT_BYTES; i++)
		if (head[i] || !e->is_wide)
			text[n++] = head[i];
	if (is_text(text, n))
		return (struct finding){by_name(memchr(text, ',', n) ? ".csv" : ".txt"), e->read_as};
	return (struct finding){NULL, ""};
}

/* Returns true if shell and Python take the name as it is, between quotation marks. */
static bool is_plain(const char *path)
{
	for (; *path; path++)
		if (!isalnum((unsigned char)*path) && !strchr("_./+,:@=%~-", *path))
			return false;
	return true;
}

/* Names the first array of a .npz, which has it as NAME.npy in its first 4 KiB; else a placeholder. */
static void name_member(const unsigned char *head, size_t len, char out[64])
{
	enum { LENGTH = 26, NAME = 30 };
	size_t n =
	    len >= NAME && begins_with(head, len, "PK\x03\x04", 4) ? head[LENGTH] + 256u * head[LENGTH + 1] : 0;

	strcpy(out, "NAME");
	if (n <= 4 || n - 4 >= 64 || n > len - NAME || memcmp(head + NAME + n - 4, ".npy", 4) != 0)
		return;
	memcpy(out, head + NAME, n - 4);
	out[n - 4] = '\0';
	if (!is_plain(out))
		strcpy(out, "NAME");
}

/*
 * Suggests the Python code that reads the file as numbers; it refuses complex arrays instead of cutting them.
 */
static int refuse_foreign(const char *path, const struct finding *found, const char *member, const char *shown,
                          const char *otherwise, char *why)
{
	const struct format *f = found->format;
	const char *name = is_plain(path) ? path : "FILE";
	char note[CLI_WHY_BYTES / 4], after[96];

	snprintf(after, sizeof(after), f->after, member);
	snprintf(note, sizeof(note), f->note, name);
	return why_invalid(why,
	                   "cannot use %s: %s %s, neither .npy nor raw elements; convert it: python3 -c "
	                   "\"import numpy%s; numpy.save('matrix.npy', numpy.asarray(%s'%s'%s%s).astype('f4', "
	                   "casting='same_kind'))\"%s%s",
	                   path, shown, f->is, f->module, f->before, name, found->read_as, after, note,
	                   otherwise);
}

int foreign_input(const char *path, const unsigned char *head, size_t len, char *why)
{
	struct finding found = {by_name(path), ""};
	char member[64];
	const char *shown = "by its name it is", *otherwise = "; if it is raw elements, name it .bin";

	if (found.format == NULL) {
		found = by_content(head, len);
		shown = "by its first bytes it is";
		otherwise = "; if it is raw elements, give them as .npy (numpy.fromfile, numpy.save)";
	}
	if (found.format == NULL)
		return 0;
	if (found.format->before == NULL)
		return why_invalid(why, "cannot use %s: %s %s; unpack it and name what is inside%s", path,
		                   shown, found.format->is, otherwise);
	name_member(head, len, member);
	return refuse_foreign(path, &found, member, shown, otherwise, why);
}

int foreign_output(const char *path, char *why)
{
	const struct format *format = by_name(path);

	if (format == NULL)
		return 0;
	return why_invalid(why,
	                   "cannot write %s: results are .npy files or raw elements, not %s; write c.npy and "
	                   "convert that, or c.bin for raw elements",
	                   path, format->is);
}
