/* Tests numbers with a fraction in a locale with a decimal comma. */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "decimal.h"

static char folder[] = "/tmp/kops-test-XXXXXX";
static bool has_comma;

/* Makes such a locale, which no system need have. */
static int make_locale(void **state)
{
	char path[64], command[256];

	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof path, "%s/source", folder);
	FILE *f = fopen(path, "w");
	if (!f)
		return -1;
	fputs("LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n", f);
	fclose(f);
	snprintf(command, sizeof command, "localedef -c -i %s %s/comma >/dev/null 2>&1", path, folder);
	int warned = system(command); /* warns of missing categories */
	setenv("LOCPATH", folder, 1);
	has_comma = warned >= 0 && setlocale(LC_ALL, "comma") && localeconv()->decimal_point[0] == ',';
	return 0;
}

static int remove_locale(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof command, "rm -r %s", folder);
	return system(command);
}

static const char *print(const char *format, ...)
{
	static char text[64];
	va_list args;

	va_start(args, format);
	decimal_print(text, sizeof text, format, args);
	va_end(args);
	return text;
}

static void test_points(void **state)
{
	char text[DECIMAL_BYTES];
	double value = 0;

	(void)state;
	assert_true(decimal_read("0.5", &value) && value == 0.5);
	assert_true(decimal_read("-1.25e3", &value) && value == -1250);
	assert_true(decimal_read("inf", &value) && value == (double)INFINITY);
	assert_string_equal(decimal_write(text, 0.5), "0.5");
	assert_string_equal(decimal_write(text, -1e300), "-1e+300");
	assert_string_equal(print("%.3f ms of %s", 2.5, "3,5"), "2.500 ms of 3,5");
}

static void test_no_numbers(void **state)
{
	double value = 7;

	(void)state;
	assert_false(decimal_read("", &value));
	assert_false(decimal_read("0,5", &value));
	assert_false(decimal_read("5x", &value));
	assert_false(decimal_read("many", &value));
	assert_true(value == 7);
}

/* The program keeps its locale. */
static void test_the_locale_stays(void **state)
{
	char text[32];

	(void)state;
	if (!has_comma)
		skip();
	snprintf(text, sizeof text, "%g", 0.5);
	assert_string_equal(text, "0,5");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_points),
	    cmocka_unit_test(test_no_numbers),
	    cmocka_unit_test(test_the_locale_stays),
	};
	return cmocka_run_group_tests(tests, make_locale, remove_locale);
}
