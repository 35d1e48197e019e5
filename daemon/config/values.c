#include "config/values.h"

#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "config/names.h"
#include "device_list.h"

struct unit {
	const char *suffix;
	uint64_t factor;
};

/* Largest first; the last is that of plain numbers. */
static const struct unit byte_units[] = {{"T", 1ull << 40}, {"G", 1ull << 30}, {"M", 1ull << 20},
                                         {"K", 1ull << 10}, {"", 1},           {NULL, 0}};
static const struct unit msec_units[] = {{"min", 60000}, {"s", 1000}, {"ms", 1}, {"", 1}, {NULL, 0}};
static const struct unit count_units[] = {{"", 1}, {NULL, 0}};

static const struct unit *units_of(enum kind kind)
{
	return kind == KIND_BYTES ? byte_units : kind == KIND_MSEC ? msec_units : count_units;
}

void config_format_number(enum kind kind, uint64_t value, char *ret, size_t size)
{
	const struct unit *u = units_of(kind);

	while (value % u->factor)
		u++;
	snprintf(ret, size, "%" PRIu64 "%s", value / u->factor, value ? u->suffix : "");
}

void config_format_default(const struct setting *s, char ret[CONFIG_TEXT_BYTES])
{
	if (s->kind == KIND_TEXT)
		snprintf(ret, CONFIG_TEXT_BYTES, "%s", s->text);
	else
		config_format_number(s->kind, s->number, ret, CONFIG_TEXT_BYTES);
}

static bool parse_value(enum kind kind, const char *text, uint64_t *ret)
{
	uint64_t value = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, *p - '0', &value))
			return false;
	if (p == text)
		return false;
	for (const struct unit *u = units_of(kind); u->suffix; u++)
		if (strcasecmp(p, u->suffix) == 0)
			return !__builtin_mul_overflow(value, u->factor, ret);
	return false;
}

static bool is_printable(const char *text)
{
	for (; *text; text++)
		if (iscntrl((unsigned char)*text))
			return false;
	return true;
}

static int assign_text(struct config *config, const struct setting *s, const char *text, const char *origin,
                       char *why)
{
	char name[CONFIG_NAME_BYTES], reason[CONFIG_WHY_BYTES / 2];
	struct device_list list;
	size_t len = strlen(text);

	config_spell(SOURCE_FILE, s->name, name);
	if (len < s->min || len > s->max)
		return config_fail(why, "%s: %s has %zu bytes, expected %" PRIu64 " to %" PRIu64, origin, name,
		                   len, s->min, s->max);
	if (!is_printable(text))
		return config_fail(why, "%s: %s holds control characters; write it as plain text", origin,
		                   name);
	if (config_text(config, s) == config->devices &&
	    device_list_parse(text, &list, reason, sizeof reason) < 0)
		return config_fail(why, "%s: %s = \"%.60s\" %s", origin, name, text, reason);
	memcpy(config_text(config, s), text, len + 1);
	return 0;
}

int config_read_number(const struct setting *s, const char *text, const char *origin, uint64_t *ret, char *why)
{
	static const char *const wanted[] = {[KIND_COUNT] = "a whole number",
	                                     [KIND_BYTES] = "a number of bytes such as 4096, 512M or 2G",
	                                     [KIND_MSEC] = "a duration such as 500ms, 10s or 2min"};
	char name[CONFIG_NAME_BYTES], min[32], max[32];
	uint64_t value;

	config_spell(SOURCE_FILE, s->name, name);
	if (!parse_value(s->kind, text, &value))
		return config_fail(why, "%s: %s = \"%.60s\" is not %s", origin, name, text, wanted[s->kind]);
	if (value < s->min || value > s->max) {
		config_format_number(s->kind, s->min, min, sizeof(min));
		config_format_number(s->kind, s->max, max, sizeof(max));
		return config_fail(why, "%s: %s = %s is out of range (%s to %s)", origin, name, text, min, max);
	}
	*ret = value;
	return 0;
}

int config_assign(struct config *config, const struct setting *s, const char *text, const char *origin,
                  char *why)
{
	int rc = s->kind == KIND_TEXT ? assign_text(config, s, text, origin, why)
	                              : config_read_number(s, text, origin, config_number(config, s), why);

	if (rc == 0)
		snprintf(config->origin[s - config_settings], CONFIG_TEXT_BYTES, "%s", origin);
	return rc;
}

void config_set_defaults(struct config *config)
{
	memset(config, 0, offsetof(struct config, owners)); /* the memory of most owners is never touched */
	for (const struct setting *s = config_settings; s < config_settings + CONFIG_SETTINGS; s++) {
		if (s->kind == KIND_TEXT)
			snprintf(config_text(config, s), CONFIG_TEXT_BYTES, "%s", s->text);
		else
			*config_number(config, s) = s->number;
		snprintf(config->origin[s - config_settings], CONFIG_TEXT_BYTES, "default");
	}
}
