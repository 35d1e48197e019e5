#include "config/print.h"

#include <stdio.h>
#include <string.h>

#include "config/names.h"
#include "config/values.h"

void config_describe(unsigned index, struct config_description *ret)
{
	const struct setting *s = &config_settings[index];

	config_spell(SOURCE_FILE, s->name, ret->name);
	config_format_default(s, ret->value);
	config_format_number(s->kind == KIND_TEXT ? KIND_COUNT : s->kind, s->min, ret->min, sizeof(ret->min));
	config_format_number(s->kind == KIND_TEXT ? KIND_COUNT : s->kind, s->max, ret->max, sizeof(ret->max));
	ret->is_text = s->kind == KIND_TEXT;
	ret->reloadable = s->reloadable;
	ret->is_limit = s->limit != NO_LIMIT;
	ret->help = s->help;
}

static void print_owner(const struct config_owner *owner)
{
	const char *kind = owner->is_group ? "group" : "user";
	char name[CONFIG_NAME_BYTES], value[CONFIG_TEXT_BYTES];

	printf("\n[%s %s] # %s", kind, owner->name, owner->origin);
	if (owner->is_known)
		printf(", %s %u\n", owner->is_group ? "gid" : "uid", (unsigned)owner->id);
	else
		printf(", ignored: there is no such %s\n", kind);
	for (const struct setting *s = config_settings; s < config_settings + CONFIG_SETTINGS; s++) {
		if (s->limit == NO_LIMIT || !owner->limits[s->limit].origin[0])
			continue;
		config_spell(SOURCE_FILE, s->name, name);
		config_format_number(s->kind, owner->limits[s->limit].value, value, sizeof(value));
		printf("%s = %s # %s\n", name, value, owner->limits[s->limit].origin);
	}
}

void config_print(const struct config *config)
{
	struct config copy = *config;
	char name[CONFIG_NAME_BYTES], value[CONFIG_TEXT_BYTES];

	puts("[kopsd]");
	for (const struct setting *s = config_settings; s < config_settings + CONFIG_SETTINGS; s++) {
		config_spell(SOURCE_FILE, s->name, name);
		if (s->kind == KIND_TEXT)
			snprintf(value, sizeof(value), "%s", config_text(&copy, s));
		else
			config_format_number(s->kind, *config_number(&copy, s), value, sizeof(value));
		printf("%s = %s # %s\n", name, value, copy.origin[s - config_settings]);
	}
	for (unsigned i = 0; i < config->n_owners; i++)
		print_owner(&config->owners[i]);
}

void config_print_help(void)
{
	struct config_description d;

	puts("usage: kopsd [--config FILE] [--check-config] [--NAME=VALUE]...\n"
	     "\n"
	     "The daemon that runs matrix jobs for local programs, on this host's GPUs and on its CPU.\n"
	     "\n"
	     "  --config FILE   read FILE and FILE.d/*.conf instead of " CONFIG_FILE "\n"
	     "  --check-config  print the settings in effect and where each comes from, and exit;\n"
	     "                  status 2 and one sentence if something is wrong\n"
	     "  -h, --help      print this and exit\n"
	     "  -V, --version   print the version and exit\n"
	     "\n"
	     "Settings. A flag beats the environment (KOPSD_MAX_JOBS for --max-jobs), which beats the files\n"
	     "(max-jobs = 256). Bytes take K, M, G, T; durations ms, s, min. * means: SIGHUP applies it.\n"
	     "Those named -per-uid may have other values in sections [user NAME] and [group NAME] of the "
	     "files.\n");
	for (unsigned i = 0; i < CONFIG_SETTINGS; i++) {
		config_describe(i, &d);
		printf("  --%s=%s%s\n      %s\n", d.name, d.value, d.reloadable ? " *" : "", d.help);
		if (!d.is_text)
			printf("      %s to %s\n", d.min, d.max);
	}
}
