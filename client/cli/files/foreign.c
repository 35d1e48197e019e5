#include "files/foreign.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "cli.h"

#define TEXT_BYTES      4096           /* looked at */
#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* before text, by some programs */

struct format {
	const char *ending; /* of names, in any case */
	const char *is;
	const char *module;         /* of Python, beside numpy; "" for none */
	const char *before, *after; /* the file's name, in what reads it; NULL: it has to be unpacked */
	const char *magic;          /* how such a file begins; NULL: it does not tell */
};

static const struct format formats[] = {
    {".csv", "comma-separated text", "", "numpy.loadtxt(", ", delimiter=',')", NULL},
    {".tsv", "text with tabs", "", "numpy.loadtxt(", ", delimiter='\\t')", NULL},
    {".txt", "text", "", "numpy.loadtxt(", ")", NULL},
    {".npz", "an archive of arrays", "", "numpy.load(", ")['arr_0']", "PK\x03\x04"},
    {".json", "JSON", ", json", "json.load(open(", "))", NULL},
    {".mat", "a MATLAB file", ", scipy.io", "scipy.io.loadmat(", ")['A']", "MATLAB 5.0 MAT-file"},
    {".h5", "an HDF5 file", ", h5py", "h5py.File(", ")['A'][:]", "\x89HDF\r\n\x1a\n"},
    {".hdf5", "an HDF5 file", ", h5py", "h5py.File(", ")['A'][:]", NULL},
    {".parquet", "a Parquet table", ", pandas", "pandas.read_parquet(", ")", "PAR1"},
    {".pt", "a PyTorch file", ", torch", "torch.load(", ")", NULL},
    {".pth", "a PyTorch file", ", torch", "torch.load(", ")", NULL},
    {".pkl", "a pickle", ", pickle", "pickle.load(open(", ", 'rb'))", NULL},
    {".pickle", "a pickle", ", pickle", "pickle.load(open(", ", 'rb'))", NULL},
    {".zip", "a zip archive", "", NULL, NULL, NULL},
    {".tar", "a tar archive", "", NULL, NULL, NULL},
    {".gz", "compressed data", "", NULL, NULL, NULL},
    {".bz2", "compressed data", "", NULL, NULL, "BZh91AY&SY"},
    {".xz", "compressed data", "", NULL, NULL, "\3757zXZ"},
    {".zst", "compressed data", "", NULL, NULL, "\x28\xb5\x2f\xfd"},
};
#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

static bool ends_with(const char *path, const char *ending)
{
	size_t n = strlen(path), m = strlen(ending);

	return n >= m && strcasecmp(path + n - m, ending) == 0;
}

static const struct format *by_name(const char *path)
{
	for (size_t i = 0; i < N_FORMATS; i++)
		if (ends_with(path, formats[i].ending))
			return &formats[i];
	return NULL;
}

static bool begins_with(const unsigned char *head, size_t len, const char *magic)
{
	size_t n = strlen(magic);

	return len >= n && memcmp(head, magic, n) == 0;
}

static bool is_printable(unsigned char c)
{
	return (c >= 0x20 && c <= 0x7e) || (c >= '\t' && c <= '\r');
}

/*
 * Elements can be printable by chance or, as bf16 from 10 to 15, by rule. Text has lines as well, or is nothing
 * but numbers.
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

static const struct format *by_content(const unsigned char *head, size_t len)
{
	for (size_t i = 0; i < N_FORMATS; i++)
		if (formats[i].magic && begins_with(head, len, formats[i].magic))
			return &formats[i];
	if (begins_with(head, len, BYTE_ORDER_MARK)) {
		head += strlen(BYTE_ORDER_MARK);
		len -= strlen(BYTE_ORDER_MARK);
	}
	if (len > TEXT_BYTES)
		len = TEXT_BYTES;
	if (is_text(head, len))
		return by_name(memchr(head, ',', len) ? ".csv" : ".txt");
	return NULL;
}

int foreign_input(const char *path, const unsigned char *head, size_t len, char *why)
{
	const struct format *format = by_name(path);
	const char *shown = format ? "by its name it is" : "it is";
	const char *otherwise = format ? "; if it is raw elements, name it .bin" : "";

	if (format == NULL)
		format = by_content(head, len);
	if (format == NULL)
		return 0;
	if (format->before == NULL)
		return why_invalid(why, "cannot use %s: %s %s; unpack it and name what is inside%s", path,
		                   shown, format->is, otherwise);
	return why_invalid(why,
	                   "cannot use %s: %s %s, neither .npy nor raw elements; convert it: python3 -c "
	                   "\"import numpy%s; numpy.save('matrix.npy', numpy.asarray(%s'%s'%s, 'f4'))\"%s",
	                   path, shown, format->is, format->module, format->before, path, format->after,
	                   otherwise);
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
