/* Tests that control sequences for terminals become '?', and nothing else does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "printable.h"

static void assert_printed(const char *text, const char *as)
{
	char copy[64];

	strcpy(copy, text);
	make_printable(copy);
	assert_string_equal(copy, as);
}

static void test_commands(void **state)
{
	(void)state;
	assert_printed("", "");
	assert_printed("a\n<3>b\033[2J\x7f\r\t", "a?<3>b?[2J???");
	assert_printed("\xc2\x80\xc2\x9f|", "??|");                                   /* U+0080, U+009F */
	assert_printed("\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa\xe2\x80\xae|", "????|"); /* U+2028 to A, E */
	assert_printed("\xe2\x80\x8e\xe2\x80\x8f\xe2\x81\xa6\xe2\x81\xa9|", "????|"); /* U+200E, F, 2066, 9 */
	assert_printed("\xd8\x9c|", "?|");                                            /* U+061C */
}

/* Tries the neighbours of those, and characters that were cut. */
static void test_text_stays(void **state)
{
	static const char *const texts[] = {
	    " ~",
	    "\xc2\xa0",                                 /* U+00A0 */
	    "\xe2\x80\x8d\xe2\x80\x90\xe2\x80\xa7",     /* U+200D, 2010, 2027 */
	    "\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa",     /* U+202F, 2065, 206A */
	    "\xd8\x9b\xd8\x9d\xe3\x80\xae\xc3\x80\xae", /* U+061B, 061D, 302E */
	    "\xc2",
	    "\xe2",
	    "\xe2\x80",
	    "\xd8",
	};

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		assert_printed(texts[i], texts[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_commands),
	    cmocka_unit_test(test_text_stays),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
