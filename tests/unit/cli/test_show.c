/* Text and figures for people: cut by the columns of a terminal, whatever their bytes are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <string.h>

#include <cmocka.h>

#include "program.h"
#include "show.h"

static void width(void **state)
{
	(void)state;
	assert_int_equal(show_width(""), 0);
	assert_int_equal(show_width("abc"), 3);
	assert_int_equal(show_width("12 µs"), 5);
	assert_int_equal(show_width("日本"), 4);
	assert_int_equal(show_width("e\xcc\x81"), 1); /* an accent alone */
	assert_int_equal(show_width("a\x1b[2J"), 5);
	assert_int_equal(show_width("\xff\xfe"), 2);
}

static void cut_is(const char *text, int columns, const char *expected)
{
	assert_string_equal(show_cut(text, columns).text, expected);
	assert_true(show_width(expected) <= columns);
}

static void cuts(void **state)
{
	(void)state;
	cut_is("", 4, "");
	cut_is("abcd", 4, "abcd");
	cut_is("abcde", 4, "abc…");
	cut_is("äöüß", 4, "äöüß");
	cut_is("äöüßä", 4, "äöü…");
	cut_is("日本語", 6, "日本語");
	cut_is("日本語", 5, "日本…");
	cut_is("日本語", 4, "日…"); /* two columns do not fit before the mark */
	cut_is("abce\xcc\x81", 4, "abce\xcc\x81");
	cut_is("a\tb\nc", 8, "a?b?c");
	cut_is("a\xe2\x80\xae"
	       "b",
	       8, "a?b"); /* would turn the direction of writing */
	cut_is("a\xff"
	       "b",
	       8, "a?b");
	cut_is("a\xe6\x97", 8, "a??");
}

/* Marks without columns: their number is unlimited, but the room is not. */
static void very_many_marks(void **state)
{
	char text[2001] = "e";
	struct show_line cut;
	(void)state;

	for (size_t i = 1; i + 1 < sizeof(text); i += 2)
		memcpy(text + i, "\xcc\x81", 2);
	cut = show_cut(text, 16);
	assert_true(strlen(cut.text) < sizeof(cut.text));
	assert_string_equal(cut.text + strlen(cut.text) - strlen("…"), "…");
}

static void ops(void **state)
{
	kops_op_shape shape = {.dtype = KOPS_BF16, .rank = 3, .extents = {4096, 1, 50257}};
	(void)state;

	assert_string_equal(show_op("gemm", &shape).text, "gemm bf16 4096×1×50257");
	shape.rank = 0;
	assert_string_equal(show_op("gemm", &shape).text, "gemm");
	shape = (kops_op_shape){.dtype = (kops_dtype)99, .rank = KOPS_VIEW_AXES};
	memset(shape.extents, 0xff, sizeof(shape.extents));
	assert_true(strlen(show_op("gemm", &shape).text) > 150);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(width),
	    cmocka_unit_test(cuts),
	    cmocka_unit_test(very_many_marks),
	    cmocka_unit_test(ops),
	};

	program_set_characters();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
