/* device_list.h: the value of the setting `devices`: "auto", or kinds and numbered devices: "gpu0,gpu1,cpu". */
#ifndef KOPS_DEVICE_LIST_H
#define KOPS_DEVICE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#define DEVICES_MAX 16

/* Lines of kinds.def. */
enum device_kind {
#define X(kind, file, built_in) DEVICE_KIND_##kind,
#include "kinds.def"
#undef X
	DEVICE_KINDS
};

/* One word of the value. */
struct device_word {
	enum device_kind kind; /* DEVICE_KINDS: auto, every device of every kind */
	bool is_numbered;      /* the device with this index; else all of the kind */
	unsigned index;
};

struct device_list {
	struct device_word words[DEVICES_MAX];
	unsigned n;
};

/* Parses the value, whether or not such devices exist. KOPS_E_INVALID with the error in why[why_bytes], to
 * follow "devices = TEXT". */
int device_list_parse(const char *text, struct device_list *ret, char *why, size_t why_bytes);

#endif
