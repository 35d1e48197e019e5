#include "device_list.h"

#include <stdio.h>
#include <string.h>

#include "kops_types.h"

#define SEPARATORS ", "
#define DIGITS     "0123456789"
#define DIGITS_MAX 5
#define WORD_BYTES 16 /* of a valid word */

static const struct {
	const char *name;
	bool is_numbered;
} kinds[DEVICE_KINDS] = {
#define X(kind, file, built_in) {#kind, (file) != NULL},
#include "kinds.def"
#undef X
};

/* Parses "12", but not "012", "" or a number that no device can have. */
static bool parse_index(const char *text, size_t len, unsigned *ret)
{
	if (len == 0 || len > DIGITS_MAX || strspn(text, DIGITS) < len || (text[0] == '0' && len > 1))
		return false;
	*ret = 0;
	for (size_t i = 0; i < len; i++)
		*ret = *ret * 10 + (unsigned)(text[i] - '0');
	return true;
}

static bool parse_word(const char *text, size_t len, struct device_word *ret)
{
	*ret = (struct device_word){.kind = DEVICE_KINDS};
	if (len == strlen("auto") && strncmp(text, "auto", len) == 0)
		return true;
	for (unsigned k = 0; k < DEVICE_KINDS; k++) {
		size_t n = strlen(kinds[k].name);

		if (len < n || strncmp(text, kinds[k].name, n) != 0)
			continue;
		ret->kind = (enum device_kind)k;
		ret->is_numbered = len > n;
		return len == n || (kinds[k].is_numbered && parse_index(text + n, len - n, &ret->index));
	}
	return false;
}

static bool has_all_of(const struct device_word *wide, const struct device_word *narrow)
{
	if (wide->kind == DEVICE_KINDS)
		return true;
	return wide->kind == narrow->kind &&
	       (!wide->is_numbered || (narrow->is_numbered && wide->index == narrow->index));
}

static void print_word(const struct device_word *word, char ret[WORD_BYTES])
{
	const char *name = word->kind == DEVICE_KINDS ? "auto" : kinds[word->kind].name;

	if (word->is_numbered)
		snprintf(ret, WORD_BYTES, "%s%u", name, word->index);
	else
		snprintf(ret, WORD_BYTES, "%s", name);
}

/* Returns true if an earlier word names the last word's devices, or the other way round. */
static bool is_named_twice(const struct device_list *list, char ret[WORD_BYTES])
{
	const struct device_word *last = &list->words[list->n - 1];

	for (const struct device_word *word = list->words; word < last; word++) {
		if (!has_all_of(word, last) && !has_all_of(last, word))
			continue;
		print_word(has_all_of(word, last) ? last : word, ret);
		return true;
	}
	return false;
}

static int add_device_word(struct device_list *list, const char *text, size_t len, char *why, size_t why_bytes)
{
	char twice[WORD_BYTES];

	if (list->n == DEVICES_MAX) {
		snprintf(why, why_bytes, "names more than the %d devices that kopsd can serve", DEVICES_MAX);
		return KOPS_E_INVALID;
	}
	if (!parse_word(text, len, &list->words[list->n++])) {
		snprintf(
		    why, why_bytes,
		    "has \"%.*s\", which is not a device; write auto, or a list of gpu (all), gpu0, gpu1, … "
		    "and cpu",
		    len > 32 ? 32 : (int)len, text);
		return KOPS_E_INVALID;
	}
	if (is_named_twice(list, twice)) {
		snprintf(why, why_bytes, "names %s twice; auto has every device, and gpu every GPU", twice);
		return KOPS_E_INVALID;
	}
	return 0;
}

int device_list_parse(const char *text, struct device_list *ret, char *why, size_t why_bytes)
{
	int rc = 0;

	ret->n = 0;
	for (text += strspn(text, SEPARATORS); *text && rc == 0; text += strspn(text, SEPARATORS)) {
		size_t len = strcspn(text, SEPARATORS);

		rc = add_device_word(ret, text, len, why, why_bytes);
		text += len;
	}
	if (rc == 0 && ret->n == 0) {
		snprintf(why, why_bytes, "names no device; write auto");
		rc = KOPS_E_INVALID;
	}
	return rc;
}
