/*
 * config.c: one table of settings, filled from four places. Each later one overrides: defaults, files,
 * environment, flags. All of them end in assign(), so that a value is checked in one place.
 */
#include "config.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device_list.h"
#include "kops_types.h"

#define NAME_BYTES      64
#define FLAG_PREFIX     "--"
#define VARIABLE_PREFIX "KOPSD_"

/* ---- The table ------------------------------------------------------------------------------ */

enum kind { KIND_TEXT, KIND_COUNT, KIND_BYTES, KIND_MSEC };

struct setting {
	const char *name; /* as the struct member: max_jobs */
	enum kind kind;
	size_t offset;
	uint64_t number;  /* default, */
	const char *text; /* or of KIND_TEXT */
	uint64_t min, max;
	bool reloadable;
	int limit; /* its place in struct user_limits; NO_LIMIT */
	const char *help;
};

#define NO_LIMIT (-1)

#define DEFAULT_TEXT(value)  .text = (value)
#define DEFAULT_COUNT(value) .number = (value)
#define DEFAULT_BYTES(value) .number = (value)
#define DEFAULT_MSEC(value)  .number = (value)

static const struct setting settings[CONFIG_SETTINGS] = {
#define SETTING(name_, type, value, min_, max_, reloadable_, help_, limit_)                                    \
	{.name = #name_,                                                                                       \
	 .kind = KIND_##type,                                                                                  \
	 .offset = offsetof(struct config, name_),                                                             \
	 .min = (min_),                                                                                        \
	 .max = (max_),                                                                                        \
	 .reloadable = (reloadable_),                                                                          \
	 .limit = (limit_),                                                                                    \
	 .help = (help_),                                                                                      \
	 DEFAULT_##type(value)},
#define X(name, ...) SETTING(name, __VA_ARGS__, NO_LIMIT)
#define U(name, ...) SETTING(name, __VA_ARGS__, (int)(offsetof(struct user_limits, name) / sizeof(uint64_t)))
#include "config.def"
#undef X
};

/* A TEXT must fit its member. */
#define X(name, type, value, min, max, reloadable, help)                                                       \
	_Static_assert(KIND_##type != KIND_TEXT || (max) < CONFIG_TEXT_BYTES, #name);
#include "config.def"
#undef X

static char *text_of(struct config *config, const struct setting *s)
{
	return (char *)config + s->offset;
}

static uint64_t *number_of(struct config *config, const struct setting *s)
{
	return (uint64_t *)(void *)((char *)config + s->offset);
}

/* ---- Sentences ------------------------------------------------------------------------------ */

static int fail(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int fail(char *why, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(why, CONFIG_WHY_BYTES, format, ap);
	va_end(ap);
	return KOPS_E_INVALID;
}

/* How each place spells a setting's name: max-jobs, KOPSD_MAX_JOBS, --max-jobs. */
enum place { PLACE_FILE, PLACE_ENVIRONMENT, PLACE_FLAG };

static void spell(enum place place, const char *name, char ret[NAME_BYTES])
{
	static const char *const prefix[] = {"", VARIABLE_PREFIX, FLAG_PREFIX};

	snprintf(ret, NAME_BYTES, "%s%s", prefix[place], name);
	for (char *p = ret + strlen(prefix[place]); *p; p++) {
		if (place == PLACE_ENVIRONMENT)
			*p = (char)toupper((unsigned char)*p);
		else if (*p == '_')
			*p = '-';
	}
}

static const struct setting *find(enum place place, const char *spelled)
{
	char name[NAME_BYTES];

	for (unsigned i = 0; i < CONFIG_SETTINGS; i++) {
		spell(place, settings[i].name, name);
		if (strcmp(name, spelled) == 0)
			return &settings[i];
	}
	return NULL;
}

static bool same_letter(char a, char b)
{
	a = a == '_' ? '-' : (char)tolower((unsigned char)a);
	b = b == '_' ? '-' : (char)tolower((unsigned char)b);
	return a == b;
}

/* Levenshtein distance of two names; cases, and '-' and '_', are alike. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[NAME_BYTES + 1];
	size_t len = strnlen(b, NAME_BYTES);

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
static bool nearest(enum place place, const char *spelled, char ret[NAME_BYTES])
{
	size_t n_plain = place == PLACE_FLAG ? sizeof(plain_flags) / sizeof(plain_flags[0]) : 0;
	unsigned best = 4;
	char name[NAME_BYTES];

	for (size_t i = 0; i < CONFIG_SETTINGS + n_plain; i++) {
		unsigned d;

		if (i < CONFIG_SETTINGS)
			spell(place, settings[i].name, name);
		else
			snprintf(name, sizeof(name), "%s", plain_flags[i - CONFIG_SETTINGS]);
		d = distance(spelled, name);
		if (d < best) {
			best = d;
			memcpy(ret, name, NAME_BYTES);
		}
	}
	return best < 4;
}

/* where: "FILE:LINE: " or "". */
static int fail_unknown(char *why, const char *where, enum place place, const char *spelled)
{
	char name[NAME_BYTES];

	if (nearest(place, spelled, name))
		return fail(why, "%sunknown setting %.80s; did you mean %s?", where, spelled, name);
	return fail(why, "%sunknown setting %.80s; kopsd --help lists the known ones", where, spelled);
}

/* ---- Values --------------------------------------------------------------------------------- */

struct unit {
	const char *suffix;
	uint64_t factor;
};

/* Largest first; the last one is the plain number's. */
static const struct unit byte_units[] = {{"T", 1ull << 40}, {"G", 1ull << 30}, {"M", 1ull << 20},
                                         {"K", 1ull << 10}, {"", 1},           {NULL, 0}};
static const struct unit msec_units[] = {{"min", 60000}, {"s", 1000}, {"ms", 1}, {"", 1}, {NULL, 0}};
static const struct unit count_units[] = {{"", 1}, {NULL, 0}};

static const struct unit *units_of(enum kind kind)
{
	return kind == KIND_BYTES ? byte_units : kind == KIND_MSEC ? msec_units : count_units;
}

/* "30s", "64G", "256": in the largest unit that leaves no remainder. */
static void format_number(enum kind kind, uint64_t value, char *ret, size_t size)
{
	const struct unit *u = units_of(kind);

	while (value % u->factor)
		u++;
	snprintf(ret, size, "%" PRIu64 "%s", value / u->factor, value ? u->suffix : "");
}

static void format_default(const struct setting *s, char ret[CONFIG_TEXT_BYTES])
{
	if (s->kind == KIND_TEXT)
		snprintf(ret, CONFIG_TEXT_BYTES, "%s", s->text);
	else
		format_number(s->kind, s->number, ret, CONFIG_TEXT_BYTES);
}

static bool parse_number(enum kind kind, const char *text, uint64_t *ret)
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

/* origin opens every sentence: "kopsd.conf:3", "KOPSD_MAX_JOBS", "--max-jobs". */
static int assign_text(struct config *config, const struct setting *s, const char *text, const char *origin,
                       char *why)
{
	char name[NAME_BYTES], reason[CONFIG_WHY_BYTES / 2];
	struct device_list list;
	size_t len = strlen(text);

	spell(PLACE_FILE, s->name, name);
	if (len < s->min || len > s->max)
		return fail(why, "%s: %s is %zu bytes long; allowed are %" PRIu64 " to %" PRIu64, origin, name,
		            len, s->min, s->max);
	if (!is_printable(text))
		return fail(why, "%s: %s holds control characters; write it as plain text", origin, name);
	if (text_of(config, s) == config->devices && device_list_parse(text, &list, reason, sizeof reason) < 0)
		return fail(why, "%s: %s = \"%.60s\" %s", origin, name, text, reason);
	memcpy(text_of(config, s), text, len + 1);
	return 0;
}

static int read_number(const struct setting *s, const char *text, const char *origin, uint64_t *ret, char *why)
{
	static const char *const wanted[] = {[KIND_COUNT] = "a whole number",
	                                     [KIND_BYTES] = "a number of bytes such as 4096, 512M or 2G",
	                                     [KIND_MSEC] = "a duration such as 500ms, 10s or 2min"};
	char name[NAME_BYTES], min[32], max[32];
	uint64_t value;

	spell(PLACE_FILE, s->name, name);
	if (!parse_number(s->kind, text, &value))
		return fail(why, "%s: %s = \"%.60s\" is not %s", origin, name, text, wanted[s->kind]);
	if (value < s->min || value > s->max) {
		format_number(s->kind, s->min, min, sizeof(min));
		format_number(s->kind, s->max, max, sizeof(max));
		return fail(why, "%s: %s = %s is out of range; allowed are %s to %s", origin, name, text, min,
		            max);
	}
	*ret = value;
	return 0;
}

static int assign(struct config *config, const struct setting *s, const char *text, const char *origin,
                  char *why)
{
	int rc = s->kind == KIND_TEXT ? assign_text(config, s, text, origin, why)
	                              : read_number(s, text, origin, number_of(config, s), why);

	if (rc == 0)
		snprintf(config->origin[s - settings], CONFIG_TEXT_BYTES, "%s", origin);
	return rc;
}

static void set_defaults(struct config *config)
{
	memset(config, 0, sizeof(*config));
	for (const struct setting *s = settings; s < settings + CONFIG_SETTINGS; s++) {
		if (s->kind == KIND_TEXT)
			snprintf(text_of(config, s), CONFIG_TEXT_BYTES, "%s", s->text);
		else
			*number_of(config, s) = s->number;
		snprintf(config->origin[s - settings], CONFIG_TEXT_BYTES, "default");
	}
}

/* ---- Files ---------------------------------------------------------------------------------- */

struct file {
	const char *path;
	unsigned line;
	bool has_section;                      /* [kopsd] */
	struct config_owner *owner;            /* whose section this is; NULL: [kopsd] */
	unsigned set_in_line[CONFIG_SETTINGS]; /* 0: not set here */
	unsigned owner_set_in_line[CONFIG_OWNERS_MAX][CONFIG_LIMITS];
};

/* Cuts white space at both ends, in place. */
static char *trim(char *text)
{
	char *end;

	while (isspace((unsigned char)*text))
		text++;
	end = text + strlen(text);
	while (end > text && isspace((unsigned char)end[-1]))
		end--;
	*end = '\0';
	return text;
}

/* A '#' or ';' at the start of a line or after white space begins a comment. */
static void cut_comment(char *text)
{
	for (char *p = text; *p; p++) {
		if ((*p == '#' || *p == ';') && (p == text || isspace((unsigned char)p[-1]))) {
			*p = '\0';
			return;
		}
	}
}

static bool find_id_of_name(bool is_group, const char *name, id_t *ret_id)
{
	const struct group *group = is_group ? getgrnam(name) : NULL;
	const struct passwd *user = is_group ? NULL : getpwnam(name);

	if (group)
		*ret_id = group->gr_gid;
	if (user)
		*ret_id = user->pw_uid;
	return group || user;
}

static bool read_id(const char *name, id_t *ret_id)
{
	unsigned long long id;

	if (!name[0] || name[strspn(name, "0123456789")])
		return false;
	id = strtoull(name, NULL, 10);
	if (id >= UINT32_MAX) /* that one stands for none */
		return false;
	*ret_id = (id_t)id;
	return true;
}

/* By name, or as a number. False: the system knows none. */
static bool find_id(bool is_group, const char *name, id_t *ret_id)
{
	return find_id_of_name(is_group, name, ret_id) || read_id(name, ret_id);
}

/* "[user NAME]" or "[group NAME]". */
static bool split_owner(const char *text, bool *ret_is_group, char name[CONFIG_OWNER_BYTES])
{
	char kind[8];
	int len = 0;

	_Static_assert(CONFIG_OWNER_BYTES == 64, "the width of the name below");
	if (sscanf(text, "[%7s %63[^]]%n", kind, name, &len) != 2 || strcmp(text + len, "]") != 0)
		return false;
	*ret_is_group = strcmp(kind, "group") == 0;
	return *ret_is_group || strcmp(kind, "user") == 0;
}

static bool is_same_owner(const struct config_owner *a, const struct config_owner *b)
{
	if (a->is_group != b->is_group || a->is_known != b->is_known)
		return false;
	return a->is_known ? a->id == b->id : strcmp(a->name, b->name) == 0;
}

/* The one of an earlier section, where it may have another name, or a new one. NULL: there are too many. */
static struct config_owner *get_owner(struct config *config, bool is_group, const char *name,
                                      const char *origin)
{
	struct config_owner *owner = config->owners, *end = owner + config->n_owners;
	struct config_owner wanted = {.is_group = is_group};

	wanted.is_known = find_id(is_group, name, &wanted.id);
	snprintf(wanted.name, sizeof(wanted.name), "%s", name);
	while (owner < end && !is_same_owner(owner, &wanted))
		owner++;
	if (owner < end)
		return owner;
	if (config->n_owners == CONFIG_OWNERS_MAX)
		return NULL;
	config->n_owners++;
	*owner = wanted;
	snprintf(owner->origin, sizeof(owner->origin), "%s", origin);
	return owner;
}

static int parse_section(struct config *config, struct file *file, const char *text, const char *origin,
                         char *why)
{
	char name[CONFIG_OWNER_BYTES];
	bool is_group;

	if (split_owner(text, &is_group, name)) {
		file->owner = get_owner(config, is_group, trim(name), origin);
		if (!file->owner)
			return fail(why, "%s: %s is one section of users and groups too many; %d are possible",
			            origin, text, CONFIG_OWNERS_MAX);
		return 0;
	}
	if (strcmp(text, "[kopsd]") != 0)
		return fail(why, "%s: unknown section %.80s; there are [kopsd], [user NAME] and [group NAME]",
		            origin, text);
	if (file->has_section)
		return fail(why, "%s: [kopsd] stands here a second time; keep one", origin);
	file->has_section = true;
	file->owner = NULL;
	return 0;
}

static int assign_limit(struct config_owner *owner, const struct setting *s, const char *text,
                        const char *origin, char *why)
{
	int rc = read_number(s, text, origin, &owner->limits[s->limit].value, why);

	if (rc == 0)
		snprintf(owner->limits[s->limit].origin, CONFIG_TEXT_BYTES, "%s", origin);
	return rc;
}

static int parse_setting(struct config *config, struct file *file, char *text, const char *origin, char *why)
{
	char where[CONFIG_TEXT_BYTES + 2];
	const struct setting *s;
	char *equals = strchr(text, '='), *key, *value;
	unsigned *set_in_line;

	if (!equals)
		return fail(why, "%s: \"%.80s\" is not a setting; write NAME = VALUE", origin, text);
	*equals = '\0';
	key = trim(text);
	value = trim(equals + 1);

	s = find(PLACE_FILE, key);
	if (!s) {
		snprintf(where, sizeof(where), "%s: ", origin);
		return fail_unknown(why, where, PLACE_FILE, key);
	}
	if (file->owner && s->limit == NO_LIMIT)
		return fail(why, "%s: %s is not a limit of one user, so it belongs to [kopsd]", origin, key);
	set_in_line = file->owner ? &file->owner_set_in_line[file->owner - config->owners][s->limit]
	                          : &file->set_in_line[s - settings];
	if (*set_in_line)
		return fail(why, "%s: %s is already set in line %u of this file; keep one", origin, key,
		            *set_in_line);
	*set_in_line = file->line;
	return file->owner ? assign_limit(file->owner, s, value, origin, why)
	                   : assign(config, s, value, origin, why);
}

static int parse_line(struct config *config, struct file *file, char *line, size_t len, char *why)
{
	char origin[CONFIG_TEXT_BYTES], *text;

	snprintf(origin, sizeof(origin), "%.200s:%u", file->path, file->line);
	if (strlen(line) != len)
		return fail(why, "%s: holds a NUL byte; this is not a text file", origin);
	cut_comment(line);
	text = trim(line);
	if (!text[0])
		return 0;
	if (text[0] == '[')
		return parse_section(config, file, text, origin, why);
	return parse_setting(config, file, text, origin, why);
}

static int read_file(struct config *config, const char *path, bool may_be_absent, char *why)
{
	struct file file = {.path = path};
	size_t capacity = 0;
	char *line = NULL;
	ssize_t len;
	int rc = 0;
	FILE *f = fopen(path, "re");

	if (!f && may_be_absent && errno == ENOENT)
		return 0;
	if (!f)
		return fail(why, "cannot open the configuration file %.300s: %s", path, strerror(errno));

	errno = 0;
	while (rc == 0 && (len = getline(&line, &capacity, f)) >= 0) {
		file.line++;
		rc = parse_line(config, &file, line, (size_t)len, why);
	}
	if (rc == 0 && ferror(f))
		rc = fail(why, "cannot read the configuration file %.300s: %s", path, strerror(errno));

	free(line);
	fclose(f);
	return rc;
}

static int is_fragment(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return entry->d_name[0] != '.' && len > 5 && strcmp(entry->d_name + len - 5, ".conf") == 0;
}

/* By bytes, so that the order does not depend on the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* The fragments in PATH.d; there may be none. */
static int read_fragments(struct config *config, const char *path, char *why)
{
	struct dirent **entries;
	char *dir = NULL, *file;
	int n, rc = 0;

	if (asprintf(&dir, "%s.d", path) < 0)
		return fail(why, "out of memory while reading %.300s", path);
	n = scandir(dir, &entries, is_fragment, by_name);
	if (n < 0 && errno != ENOENT)
		rc = fail(why, "cannot list the configuration directory %.300s: %s", dir, strerror(errno));

	for (int i = 0; i < n; i++) {
		if (rc == 0 && asprintf(&file, "%s/%s", dir, entries[i]->d_name) < 0)
			rc = fail(why, "out of memory while reading %.300s", dir);
		else if (rc == 0) {
			rc = read_file(config, file, false, why);
			free(file);
		}
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	free(dir);
	return rc;
}

/* ---- Environment ---------------------------------------------------------------------------- */

static int read_environment(struct config *config, char *why)
{
	for (char **variable = environ; *variable; variable++) {
		const char *equals = strchr(*variable, '=');
		const struct setting *s;
		char name[CONFIG_TEXT_BYTES];
		int rc;

		if (strncmp(*variable, VARIABLE_PREFIX, strlen(VARIABLE_PREFIX)) != 0 || !equals)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(equals - *variable), *variable);
		s = find(PLACE_ENVIRONMENT, name);
		if (!s)
			return fail_unknown(why, "environment: ", PLACE_ENVIRONMENT, name);
		rc = assign(config, s, equals + 1, name, why);
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

/* The value of the flag just taken: what follows its '=', or the next argument. */
static int flag_value(struct command_line *cl, const char *name, const char *attached, const char **ret,
                      char *why)
{
	if (attached) {
		*ret = attached;
		return 0;
	}
	if (cl->next >= cl->argc)
		return fail(why, "%s needs a value; write %s=VALUE", name, name);
	*ret = cl->argv[cl->next++];
	return 0;
}

/* --help and its like. 1 if name is one of them, 0 if not, KOPS_E_INVALID if it got a value. */
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
			return fail(why, "%s takes no value", name);
		cl->action = rows[i].action;
		return 1;
	}
	return 0;
}

/* One flag with its value. config is NULL while only --config and the action are wanted. */
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
		return fail(why, "unexpected argument \"%.80s\"; settings are given as --NAME=VALUE", argument);

	rc = take_action(cl, name, attached, why);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	if (strcmp(name, "--config") == 0)
		return flag_value(cl, name, attached, &cl->file, why);
	s = find(PLACE_FLAG, name);
	if (!s)
		return fail_unknown(why, "command line: ", PLACE_FLAG, name);
	rc = flag_value(cl, name, attached, &value, why);
	if (rc < 0)
		return rc;
	return config ? assign(config, s, value, name, why) : 0;
}

static int read_flags(struct command_line *cl, struct config *config, char *why)
{
	int rc = 0;

	for (cl->next = 1; rc == 0 && cl->next < cl->argc;)
		rc = take_flag(cl, config, why);
	return rc;
}

/* ---- All together --------------------------------------------------------------------------- */

/* Files, environment and flags over the defaults that config holds. */
static int read_all(struct command_line *cl, struct config *config, char *why)
{
	const char *path = cl->file ? cl->file : CONFIG_FILE;
	int rc = read_file(config, path, !cl->file, why);

	if (rc == 0)
		rc = read_fragments(config, path, why);
	if (rc == 0)
		rc = read_environment(config, why);
	if (rc == 0)
		rc = read_flags(cl, config, why);
	return rc;
}

int config_load(int argc, char **argv, struct config *ret, enum config_action *ret_action,
                char why[CONFIG_WHY_BYTES])
{
	struct command_line cl = {.argc = argc, .argv = argv, .action = CONFIG_RUN};
	struct config config;
	int rc;

	set_defaults(&config);
	rc = read_flags(&cl, NULL, why);
	/* Help must be there even when a file is wrong. */
	if (rc == 0 && cl.action != CONFIG_HELP && cl.action != CONFIG_SHOW_VERSION)
		rc = read_all(&cl, &config, why);
	if (rc < 0)
		return rc;
	*ret = config;
	*ret_action = cl.action;
	return 0;
}

static bool differs(struct config *a, struct config *b, const struct setting *s)
{
	if (s->kind == KIND_TEXT)
		return strcmp(text_of(a, s), text_of(b, s)) != 0;
	return *number_of(a, s) != *number_of(b, s);
}

static void add_name(const struct setting *s, char names[CONFIG_WHY_BYTES])
{
	char name[NAME_BYTES];
	size_t len = strlen(names);

	spell(PLACE_FILE, s->name, name);
	snprintf(names + len, CONFIG_WHY_BYTES - len, "%s%s", len > 0 ? ", " : "", name);
}

bool config_reload(struct config *live, const struct config *fresh, char ret_names[CONFIG_WHY_BYTES])
{
	struct config wanted = *fresh;

	ret_names[0] = '\0';
	for (const struct setting *s = settings; s < settings + CONFIG_SETTINGS; s++) {
		if (!s->reloadable) {
			if (differs(live, &wanted, s))
				add_name(s, ret_names);
			continue;
		}
		if (s->kind == KIND_TEXT)
			memcpy(text_of(live, s), text_of(&wanted, s), CONFIG_TEXT_BYTES);
		else
			*number_of(live, s) = *number_of(&wanted, s);
		memcpy(live->origin[s - settings], wanted.origin[s - settings], CONFIG_TEXT_BYTES);
	}
	live->n_owners = wanted.n_owners;
	memcpy(live->owners, wanted.owners, sizeof(live->owners));
	return ret_names[0] != '\0';
}

/* ---- For people ----------------------------------------------------------------------------- */

void config_describe(unsigned index, struct config_description *ret)
{
	const struct setting *s = &settings[index];

	spell(PLACE_FILE, s->name, ret->name);
	format_default(s, ret->value);
	format_number(s->kind == KIND_TEXT ? KIND_COUNT : s->kind, s->min, ret->min, sizeof(ret->min));
	format_number(s->kind == KIND_TEXT ? KIND_COUNT : s->kind, s->max, ret->max, sizeof(ret->max));
	ret->is_text = s->kind == KIND_TEXT;
	ret->reloadable = s->reloadable;
	ret->is_limit = s->limit != NO_LIMIT;
	ret->help = s->help;
}

static void print_owner(const struct config_owner *owner)
{
	const char *kind = owner->is_group ? "group" : "user";
	char name[NAME_BYTES], value[CONFIG_TEXT_BYTES];

	printf("\n[%s %s] # %s", kind, owner->name, owner->origin);
	if (owner->is_known)
		printf(", %s %u\n", owner->is_group ? "gid" : "uid", (unsigned)owner->id);
	else
		printf(", without effect: there is no such %s\n", kind);
	for (const struct setting *s = settings; s < settings + CONFIG_SETTINGS; s++) {
		if (s->limit == NO_LIMIT || !owner->limits[s->limit].origin[0])
			continue;
		spell(PLACE_FILE, s->name, name);
		format_number(s->kind, owner->limits[s->limit].value, value, sizeof(value));
		printf("%s = %s # %s\n", name, value, owner->limits[s->limit].origin);
	}
}

void config_print(const struct config *config)
{
	struct config copy = *config;
	char name[NAME_BYTES], value[CONFIG_TEXT_BYTES];

	puts("[kopsd]");
	for (const struct setting *s = settings; s < settings + CONFIG_SETTINGS; s++) {
		spell(PLACE_FILE, s->name, name);
		if (s->kind == KIND_TEXT)
			snprintf(value, sizeof(value), "%s", text_of(&copy, s));
		else
			format_number(s->kind, *number_of(&copy, s), value, sizeof(value));
		printf("%s = %s # %s\n", name, value, copy.origin[s - settings]);
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
