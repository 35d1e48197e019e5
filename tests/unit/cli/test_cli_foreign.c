/* Tests which files kops-client refuses to take for raw elements, and which it must accept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cli.h"
#include "files/foreign.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

static void test_names(void **state)
{
	static const char *const refused[] = {"a.csv",    "a.TSV",     "b/a.txt", "a.npz", "a.json",
	                                      "a.mat",    "a.h5",      "a.hdf5",  "a.pt",  "a.pth",
	                                      "a.pkl",    "a.parquet", "a.zip",   "a.gz",  "a.npy.gz",
	                                      "a.npy.xz", "a.bz2",     "a.zst",   "a.tar"};
	static const char *const taken[] = {"a.bin", "a", "a.f32", "csv", "a.csv.raw", "a.npy", "txt/a"};
	char why[CLI_WHY_BYTES];
	(void)state;

	for (size_t i = 0; i < N(refused); i++) {
		assert_int_equal(foreign_input(refused[i], (const unsigned char *)"", 0, why), KOPS_E_INVALID);
		assert_non_null(strstr(why, refused[i]));
		assert_non_null(strstr(why, "if it is raw elements, name it .bin"));
		assert_int_equal(foreign_output(refused[i], why), KOPS_E_INVALID);
		assert_non_null(strstr(why, refused[i]));
	}
	for (size_t i = 0; i < N(taken); i++) {
		assert_int_equal(foreign_input(taken[i], (const unsigned char *)"", 0, why), 0);
		assert_int_equal(foreign_output(taken[i], why), 0);
	}
}

static void test_contents(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		const char *reader;
	} rows[] = {
	    {"1,2\n3,4\n", 8, "numpy.loadtxt('m', delimiter=',')"},
	    {"1.5 2.5 -3e7 0.5", 16, "numpy.loadtxt('m')"},
	    {"x,y,z\r\n1.0,2.0,3.0\r\n", 20, "delimiter=','"},
	    {"# a comment of any kind\n1 2\n", 28, "numpy.loadtxt('m')"},
	    {"[[1, 2], [3, 4]]", 16, "numpy.loadtxt"},
	    {"PK\x03\x04\x14\0\0\0\0\0\0\0", 12, "numpy.load('m')['NAME'])"},
	    {"PK\x03\x04\x14\0\0\0\0\0\0\0!\0\0\0\0\0\0\0\0\0\0\0\0\0\x0b\0\0\0weights.npy", 41,
	     "numpy.load('m')['weights'])"},
	    {"PK\x03\x04\x14\0\0\0\0\0\0\0!\0\0\0\0\0\0\0\0\0\0\0\0\0\x0b\0\0\0weights.npy", 40, "['NAME']"},
	    {"PK\x03\x04\x14\0\0\0\0\0\0\0!\0\0\0\0\0\0\0\0\0\0\0\0\0\x0b\0\0\0a'b;c\"d.npy", 41, "['NAME']"},
	    {"\x89HDF\r\n\x1a\n\0\0\0\0", 12, "h5py"},
	    {"MATLAB 5.0 MAT-file, Platform: GLNXA64\0\1", 40, "scipy.io.loadmat('m')"},
	    {"PAR1\x15\4\x15\x10", 8, "pandas.read_parquet('m')"},
	    {"\357\273\2771.5,2\r\n", 10, "('m', encoding='utf-8-sig', delimiter=',')"},
	    {"\xff\xfe\061\0,\0002\0\n\0", 10, "('m', encoding='utf-16', delimiter=',')"},
	    {"\xfe\xff\0001\0 \0002\0\n", 10, "('m', encoding='utf-16')"},
	    {"\xff\xfe\0\0\061\0\0\0\n\0\0\0", 12, "('m', encoding='utf-32')"},
	    {"\0\0\xfe\xff\0\0\0001\0\0\0\n", 12, "('m', encoding='utf-32')"},
	    {"\200\2cnumpy.core.multiarray\n_reconstruct\n", 40, "pickle.load(open('m', 'rb'))"},
	    {"\200\3]q\0(G?\360\0\0\0\0\0\0", 15, "pickle.load"},
	    {"\200\4\x95\x88\0\0\0\0\0\0\0\x8c", 12, "pickle.load"},
	    {"\200\5\x95\x88\1\0\0\0\0\0\0\x8c", 12, "pickle.load"},
	    {"\200\2\x8a\n\x6c\xfc\x9c\106\xf9\x20\x6a\xa8", 12, "torch.load('m')"},
	};
	char why[CLI_WHY_BYTES];
	(void)state;

	for (size_t i = 0; i < N(rows); i++) {
		assert_int_equal(foreign_input("m", (const unsigned char *)rows[i].bytes, rows[i].len, why),
		                 KOPS_E_INVALID);
		assert_non_null(strstr(why, "numpy.save('matrix.npy'"));
		assert_non_null(strstr(why, rows[i].reader));
		assert_non_null(strstr(why, "if it is raw elements, give them as .npy"));
	}
}

static void test_what_a_hint_adds(void **state)
{
	static const struct {
		const char *path, *hint;
	} rows[] = {
	    {"a.npz", "; numpy.load('a.npz').files has the names"},
	    {"a.h5", "; h5py.File('a.h5').keys() has the names"},
	    {"a.mat", "; scipy.io.whosmat('a.mat') has the names"},
	    {"a.pkl", "; only if you trust the file"},
	    {"a.pth", "; only if you trust the file"},
	    {"a.csv", "casting='same_kind'"}, /* refuses complex numbers */
	    /* A name that shell or Python would interpret stays out of the command to paste. */
	    {"$(reboot).csv", "numpy.loadtxt('FILE', delimiter=',')"},
	    {"a'b.txt", "numpy.loadtxt('FILE')"},
	    {"a b.npz", "; numpy.load('FILE').files"},
	};
	char why[CLI_WHY_BYTES];
	(void)state;

	for (size_t i = 0; i < N(rows); i++) {
		assert_int_equal(foreign_input(rows[i].path, (const unsigned char *)"", 0, why),
		                 KOPS_E_INVALID);
		if (strstr(why, rows[i].hint) == NULL)
			fail_msg("%s: \"%s\" does not say \"%s\"", rows[i].path, why, rows[i].hint);
	}
}

static void test_compressed_contents(void **state)
{
	static const char *const rows[] = {"BZh91AY&SY\x12\x34", "\3757zXZ\0\0\4\xe6\xd6\xb4\x46",
	                                   "\x28\xb5\x2f\xfd\4\0\1\0\0\0\0\0", "\x1f\x8b\x08\0\0\0\0\0\0\3\1\0",
	                                   "\x1f\x8b\x08\x08\1\2\3\4\0\3m\0"};
	char why[CLI_WHY_BYTES];
	(void)state;

	for (size_t i = 0; i < N(rows); i++) {
		assert_int_equal(foreign_input("m", (const unsigned char *)rows[i], 12, why), KOPS_E_INVALID);
		assert_non_null(strstr(why, "unpack it and name what is inside"));
	}
}

/* Text is judged by its first 4 KiB. */
static void test_long_text(void **state)
{
	static unsigned char bytes[16384];
	char why[CLI_WHY_BYTES];
	(void)state;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = i % 10 == 9 ? '\n' : '7';
	bytes[4096] = 0;
	assert_int_equal(foreign_input("m", bytes, sizeof(bytes), why), KOPS_E_INVALID);
	bytes[4095] = 0;
	assert_int_equal(foreign_input("m", bytes, sizeof(bytes), why), 0);
}

/* The bytes of these elements are all printable. */
static void test_printable_elements(void **state)
{
	const uint16_t threes = 0x4040;                                            /* bf16 */
	const uint16_t teens[] = {0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170}; /* bf16, 10 to 15 */
	const float constant = 3.0039215f;                                         /* 0x40404040 */
	uint16_t halves[64];
	float floats[64];
	char why[CLI_WHY_BYTES];
	(void)state;

	for (size_t i = 0; i < 64; i++) {
		halves[i] = teens[i % N(teens)];
		floats[i] = constant;
	}
	assert_int_equal(foreign_input("m", (const unsigned char *)halves, sizeof(halves), why), 0);
	assert_int_equal(foreign_input("m", (const unsigned char *)floats, sizeof(floats), why), 0);
	for (size_t i = 0; i < 64; i++)
		halves[i] = threes;
	assert_int_equal(foreign_input("m", (const unsigned char *)halves, sizeof(halves), why), 0);
	assert_int_equal(foreign_input("m", (const unsigned char *)&constant, sizeof(constant), why), 0);
}

/* These elements begin like another format for two or three bytes. */
static void test_elements_that_begin_alike(void **state)
{
	static const char *const rows[] = {
	    "\x1f\x8b\x08\x3f\0\0\x80\x3f",     /* gzip never has this fourth byte */
	    "\x1f\x8b\x3f\x3f\0\0\x80\x3f",     /* f32: 0.747… */
	    "\xff\xfe\x80\x3f\0\0\x80\x3f",     /* f32: 1.007…; no text follows the mark */
	    "\xff\xfe\x7f\x3f\xff\xfe\x7f\x3f", /* f32: 0.99998 */
	    "\200\2\x80\x3f\0\0\x80\x3f",       /* f32: 1.00007… */
	    "\200\4\x95\x3f\0\0\x80\x3f",       /* f32: 1.16… */
	    "PK\x80\x3f\0\0\x80\x3f",           /* f32: 1.002… */
	};
	char why[CLI_WHY_BYTES];
	(void)state;

	for (size_t i = 0; i < N(rows); i++)
		assert_int_equal(foreign_input("m", (const unsigned char *)rows[i], 8, why), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_names),
	    cmocka_unit_test(test_contents),
	    cmocka_unit_test(test_what_a_hint_adds),
	    cmocka_unit_test(test_compressed_contents),
	    cmocka_unit_test(test_long_text),
	    cmocka_unit_test(test_printable_elements),
	    cmocka_unit_test(test_elements_that_begin_alike),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
