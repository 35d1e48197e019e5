/*
 * load.c: settings from defaults, files, environment and flags; each later source overrides. All end in
 * config_assign(), so that one function checks all values.
 */
#include "config/load.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/file.h"
#include "config/names.h"
#include "config/values.h"
#include "kops_types.h"

/* ---- Environment ---------------------------------------------------------------------------- */

static int read_environment(struct config *config, char *why)
{
	for (char **variable = environ; *variable; variable++) {
		const char *equals = strchr(*variable, '=');
		const struct setting *s;
		char name[CONFIG_TEXT_BYTES];
		int rc;

		if (strncmp(*variable, CONFIG_VARIABLE_PREFIX, strlen(CONFIG_VARIABLE_PREFIX)) != 0 || !equals)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(equals - *variable), *variable);
		s = config_find(SOURCE_ENVIRONMENT, name);
		if (!s)
			return config_fail_unknown(why, "environment: ", SOURCE_ENVIRONMENT, name);
		rc = config_assign(config, s, equals + 1, name, why);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- Flags ---------------------------------------------------------------------------------- */

struct command_line {
	int argc;
	char **argv;
	int next; /* index of the next argument */
	const char *file;
	enum config_action action;
};

/* The value of the flag just taken: the text after its '=', or the next argument. */
static int flag_value(struct command_line *cl, const char *name, const char *attached, const char **ret,
                      char *why)
{
	if (attached) {
		*ret = attached;
		return 0;
	}
	if (cl->next >= cl->argc)
		return config_fail(why, "%s needs a value; write %s=VALUE", name, name);
	*ret = cl->argv[cl->next++];
	return 0;
}

/* Handles --help and similar flags. 1 if name is one of them, 0 if not, KOPS_E_INVALID if it has a value. */
static int take_action(struct command_line *cl, const char *name, const char *attached, char *why)
{
	static const struct {
		const char *name;
		enum config_action action;
	} rows[] = {{"--check-config", CONFIG_CHECK},
	            {"--help", CONFIG_HELP},
	            {"-h", CONFIG_HELP},
	            {"--version", CONFIG_SHOW_VERSION},
	            {"-V", CONFIG_SHOW_VERSION}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (strcmp(name, rows[i].name) != 0)
			continue;
		if (attached)
			return config_fail(why, "%s takes no value", name);
		cl->action = rows[i].action;
		return 1;
	}
	return 0;
}

/* Handles one flag with its value. config is NULL while only --config and the action are read. */
static int take_flag(struct command_line *cl, struct config *config, char *why)
{
	const char *argument = cl->argv[cl->next++], *attached = strchr(argument, '='), *value = NULL;
	const struct setting *s;
	char name[CONFIG_TEXT_BYTES];
	int rc;

	snprintf(name, sizeof(name), "%.*s", attached ? (int)(attached - argument) : (int)strlen(argument),
	         argument);
	if (attached)
		attached++;
	if (name[0] != '-')
		return config_fail(why, "unexpected argument \"%.80s\"; settings are given as --NAME=VALUE",
		                   argument);

	rc = take_action(cl, name, attached, why);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	if (strcmp(name, "--config") == 0)
		return flag_value(cl, name, attached, &cl->file, why);
	s = config_find(SOURCE_FLAG, name);
	if (!s)
		return config_fail_unknown(why, "command line: ", SOURCE_FLAG, name);
	rc = flag_value(cl, name, attached, &value, why);
	if (rc < 0)
		return rc;
	return config ? config_assign(config, s, value, name, why) : 0;
}

static int read_flags(struct command_line *cl, struct config *config, char *why)
{
	int rc = 0;

	for (cl->next = 1; rc == 0 && cl->next < cl->argc;)
		rc = take_flag(cl, config, why);
	return rc;
}

/* ---- All together --------------------------------------------------------------------------- */

/* Reads files, environment and flags over the defaults in config. */
static int read_all(struct command_line *cl, struct config *config, char *why)
{
	const char *path = cl->file ? cl->file : CONFIG_FILE;
	int rc = config_read_file(config, path, !cl->file, why);

	if (rc == 0)
		rc = config_read_fragments(config, path, why);
	if (rc == 0)
		rc = read_environment(config, why);
	if (rc == 0)
		rc = read_flags(cl, config, why);
	return rc;
}

/* Copies only the sections that exist; the memory of others is never touched. */
static void copy(struct config *ret, const struct config *config)
{
	memcpy(ret, config, offsetof(struct config, owners) + config->n_owners * sizeof(config->owners[0]));
}

/* Without root, and without a service manager that makes /run/kopsd, the socket is where clients look for their
 * own user's. */
static void choose_socket(struct config *config)
{
	const char *folder = getenv("XDG_RUNTIME_DIR");
	char path[CONFIG_TEXT_BYTES];

	if (geteuid() == 0 || !folder || folder[0] != '/' || strcmp(config->origin[0], "default") != 0)
		return;
	if (snprintf(path, sizeof(path), "%s/kopsd.sock", folder) >= (int)sizeof(path))
		return;
	strcpy(config->socket, path);
	strcpy(config->origin[0], "XDG_RUNTIME_DIR");
}

int config_load(int argc, char **argv, struct config *ret, enum config_action *ret_action,
                char why[CONFIG_WHY_BYTES])
{
	struct command_line cl = {.argc = argc, .argv = argv, .action = CONFIG_RUN};
	struct config *config = malloc(sizeof(*config));
	int rc;

	if (!config) {
		snprintf(why, CONFIG_WHY_BYTES, "out of memory reading the settings");
		return KOPS_E_NOMEM;
	}
	config_set_defaults(config);
	rc = read_flags(&cl, NULL, why);
	/* Help must be there even when a file is wrong. */
	if (rc == 0 && cl.action != CONFIG_HELP && cl.action != CONFIG_SHOW_VERSION)
		rc = read_all(&cl, config, why);
	choose_socket(config);
	if (rc >= 0) {
		copy(ret, config);
		*ret_action = cl.action;
	}
	free(config);
	return rc < 0 ? rc : 0;
}

static bool differs(struct config *a, struct config *b, const struct setting *s)
{
	if (s->kind == KIND_TEXT)
		return strcmp(config_text(a, s), config_text(b, s)) != 0;
	return *config_number(a, s) != *config_number(b, s);
}

static void add_name(const struct setting *s, char names[CONFIG_WHY_BYTES])
{
	char name[CONFIG_NAME_BYTES];
	size_t len = strlen(names);

	config_spell(SOURCE_FILE, s->name, name);
	snprintf(names + len, CONFIG_WHY_BYTES - len, "%s%s", len > 0 ? ", " : "", name);
}

bool config_reload(struct config *live, const struct config *fresh, char ret_names[CONFIG_WHY_BYTES])
{
	struct config wanted;

	copy(&wanted, fresh);
	ret_names[0] = '\0';
	for (const struct setting *s = config_settings; s < config_settings + CONFIG_SETTINGS; s++) {
		if (!s->reloadable) {
			if (differs(live, &wanted, s))
				add_name(s, ret_names);
			continue;
		}
		if (s->kind == KIND_TEXT)
			memcpy(config_text(live, s), config_text(&wanted, s), CONFIG_TEXT_BYTES);
		else
			*config_number(live, s) = *config_number(&wanted, s);
		memcpy(live->origin[s - config_settings], wanted.origin[s - config_settings],
		       CONFIG_TEXT_BYTES);
	}
	live->n_owners = wanted.n_owners;
	memcpy(live->owners, wanted.owners, wanted.n_owners * sizeof(wanted.owners[0]));
	return ret_names[0] != '\0';
}
