#include "config/settings.h"

#include <stddef.h>

#define DEFAULT_TEXT(value)  .text = (value)
#define DEFAULT_COUNT(value) .number = (value)
#define DEFAULT_BYTES(value) .number = (value)
#define DEFAULT_MSEC(value)  .number = (value)

const struct setting config_settings[CONFIG_SETTINGS] = {
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
#include "config/config.def"
#undef X
};

/* A TEXT must fit its member. */
#define X(name, type, value, min, max, reloadable, help)                                                       \
	_Static_assert(KIND_##type != KIND_TEXT || (max) < CONFIG_TEXT_BYTES, #name);
#include "config/config.def"
#undef X

char *config_text(struct config *config, const struct setting *s)
{
	return (char *)config + s->offset;
}

uint64_t *config_number(struct config *config, const struct setting *s)
{
	return (uint64_t *)(void *)((char *)config + s->offset);
}
