#include "config/names.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kops_types.h"

int config_fail(char *why, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(why, CONFIG_WHY_BYTES, format, ap);
	va_end(ap);
	return KOPS_E_INVALID;
}

void config_spell(enum config_source source, const char *name, char ret[CONFIG_NAME_BYTES])
{
	static const char *const prefix[] = {"", CONFIG_VARIABLE_PREFIX, CONFIG_FLAG_PREFIX};

	snprintf(ret, CONFIG_NAME_BYTES, "%s%s", prefix[source], name);
	for (char *p = ret + strlen(prefix[source]); *p; p++) {
		if (source == SOURCE_ENVIRONMENT)
			*p = (char)toupper((unsigned char)*p);
		else if (*p == '_')
			*p = '-';
	}
}

const struct setting *config_find(enum config_source source, const char *spelled)
{
	char name[CONFIG_NAME_BYTES];

	for (unsigned i = 0; i < CONFIG_SETTINGS; i++) {
		config_spell(source, config_settings[i].name, name);
		if (strcmp(name, spelled) == 0)
			return &config_settings[i];
	}
	return NULL;
}

static bool same_letter(char a, char b)
{
	a = a == '_' ? '-' : (char)tolower((unsigned char)a);
	b = b == '_' ? '-' : (char)tolower((unsigned char)b);
	return a == b;
}

/* Levenshtein distance of two names. Upper and lower case are alike, and so are '-' and '_'. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[CONFIG_NAME_BYTES + 1];
	size_t len = strnlen(b, CONFIG_NAME_BYTES);

	for (unsigned j = 0; j <= len; j++)
		row[j] = j;
	for (unsigned i = 0; a[i]; i++) {
		unsigned diagonal = row[0];

		row[0] = i + 1;
		for (unsigned j = 0; j < len; j++) {
			unsigned changed = diagonal + !same_letter(a[i], b[j]);
			unsigned shorter = row[j] < row[j + 1] ? row[j] + 1 : row[j + 1] + 1;

			diagonal = row[j + 1];
			row[j + 1] = changed < shorter ? changed : shorter;
		}
	}
	return row[len];
}

static const char *const plain_flags[] = {"--config", "--check-config", "--help", "--version"};

/* Writes the known name nearest to `spelled`; false if none is near. */
static bool nearest(enum config_source source, const char *spelled, char ret[CONFIG_NAME_BYTES])
{
	size_t n_plain = source == SOURCE_FLAG ? sizeof(plain_flags) / sizeof(plain_flags[0]) : 0;
	unsigned best = 4;
	char name[CONFIG_NAME_BYTES];

	for (size_t i = 0; i < CONFIG_SETTINGS + n_plain; i++) {
		unsigned d;

		if (i < CONFIG_SETTINGS)
			config_spell(source, config_settings[i].name, name);
		else
			snprintf(name, sizeof(name), "%s", plain_flags[i - CONFIG_SETTINGS]);
		d = distance(spelled, name);
		if (d < best) {
			best = d;
			memcpy(ret, name, CONFIG_NAME_BYTES);
		}
	}
	return best < 4;
}

int config_fail_unknown(char *why, const char *where, enum config_source source, const char *spelled)
{
	char name[CONFIG_NAME_BYTES];

	if (nearest(source, spelled, name))
		return config_fail(why, "%sunknown setting %.80s; did you mean %s?", where, spelled, name);
	return config_fail(why, "%sunknown setting %.80s; kopsd --help lists the known ones", where, spelled);
}
