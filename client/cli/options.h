/* options.h: the options of all commands. A command lists those it takes; options_parse() does the rest. */
#ifndef KOPS_CLI_OPTIONS_H
#define KOPS_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kops.h"

#define CLI_WHY_BYTES 1024 /* room for the sentence that tells people what went wrong */

/*
 * Writes an error sentence, for code without struct cli, and returns KOPS_E_INVALID. why may be NULL, or an
 * argument.
 */
int why_invalid(char why[CLI_WHY_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));

struct opt_count {
	bool set;
	uint64_t value;
};

struct opt_real {
	bool set;
	double value;
};

static inline double opt_or(struct opt_real given, double otherwise)
{
	return given.set ? given.value : otherwise;
}

static inline uint64_t count_or(struct opt_count given, uint64_t otherwise)
{
	return given.set ? given.value : otherwise;
}

#define SETTINGS_ATTRIBUTES_MAX 16 /* same as in kernel.h */
#define FLAGS_OPERANDS_MAX      8  /* same as in operation.h */

/* An attribute of an op, stored by its type; numbers and counts in one form. */
struct described_setting {
	struct opt_real number;
	bool flag;
	unsigned choice; /* 1 + its index; 0: not given */
};

/* Settings of an op, from a verb's options or a job file. All zero: nothing was given. */
struct settings {
	const char *kernel;
	struct described_setting attributes[SETTINGS_ATTRIBUTES_MAX]; /* in the order of the op's description */
};

struct flags {
	bool help, version, json, quiet, check, npy, follow, batch;
	const char *socket, *output, *device, *accumulate; /* NULL: not given */
	struct opt_count m, n, k;
	struct settings op;
	const char *operands[FLAGS_OPERANDS_MAX]; /* files of optional operands, by the op's description */
	bool trans_a, trans_b;
	kops_dtype dtype; /* 0: not given */
	kops_priority priority;
	kops_precision precision; /* of ops that have such an attribute; for verbs that take any op */
	uint32_t timeout_ms;      /* 0: libkops' default */
	uint32_t interval_ms;
	unsigned sort; /* enum top_sort */
	/* load */
	const char *name, *group;
	bool everybody, keep;
	/* trace; unload has user, too */
	const char *user, *of_op, *perfetto;
	struct opt_real longer_than;
	/* kops-bench */
	struct opt_count count, size, warmup, reps, launches, seed;
	struct opt_count random, spin, clients, out, every, uid;
	const char *shape, *table, *cache;
	unsigned input; /* enum bench_input */
	struct opt_real fma_rate;
	bool with[FLAGS_OPERANDS_MAX]; /* optional inputs to measure with, by the op's description */
	bool host, again, no_check, no_ceiling, csv, two;
	/* kops-exporter */
	const char *listen;
};

/* Values that are not listed but may be looked up to complete a word. */
enum option_values { VALUES_OTHER, VALUES_FILES, VALUES_DEVICES, VALUES_KERNELS, VALUES_OPS };

/* The kind of an option's values. */
struct option_type {
	const char *takes; /* "a number" */
	/* Allowed words, ended by NULL. The member, an enum, gets the index of the given one plus `first`. */
	const char *const *words;
	unsigned first;
	/* Without words: reads text into the member; returns false if it is invalid. */
	bool (*parse)(const char *text, void *member);
	enum option_values values;
};

extern const struct option_type options_switch; /* bool: yes or no; yes without an argument */
/* const char *; the last three differ in how they are completed */
extern const struct option_type options_text, options_file, options_device, options_kernel;
extern const struct option_type options_count, options_count32; /* struct opt_count; up to UINT32_MAX */
extern const struct option_type options_real;                   /* struct opt_real, finite */
extern const struct option_type options_dtype, options_precision, options_priority; /* kops_… */
extern const struct option_type options_time;     /* uint32_t milliseconds: 2, 0.5, 500ms, 2s, 1min */
extern const struct option_type options_duration; /* struct opt_real, microseconds; as above, and 20us */

struct option_row {
	const char *name;     /* without the dashes */
	char letter;          /* 0: only the long form */
	const char *argument; /* "FILE"; NULL: a switch */
	const struct option_type *type;
	size_t member; /* offset in struct flags */
	const char *help;
};

#define OPTION(name, letter, argument, type, member, help)                                                     \
	{                                                                                                      \
		name, letter, argument, &options_##type, offsetof(struct flags, member), help                  \
	}

#define OPTION_JSON OPTION("json", 0, NULL, switch, json, "print one JSON document (\"schema\": 1) on stdout")
#define OPTION_TIMEOUT                                                                                         \
	OPTION("timeout", 0, "TIME", time, timeout_ms,                                                         \
	       "give up after this time: 2 (seconds), 500ms, 1min; default 30s")
/* For verbs that compute. */
#define OPTION_TIMEOUT_JOB                                                                                     \
	OPTION("timeout", 0, "TIME", time, timeout_ms,                                                         \
	       "give up after this time: 2 (seconds), 500ms, 1min; default: wait while kopsd answers")
#define OPTION_DEVICE                                                                                          \
	OPTION("device", 0, "NAME", device, device,                                                            \
	       "where to run: gpu0, cpu, …; gpu*: any GPU, or several at once; default: kopsd chooses")
#define OPTION_KERNEL                                                                                          \
	OPTION("kernel", 0, "NAME", kernel, op.kernel, "insist on one kernel; `kops-client ops` lists them")
#define OPTION_DTYPE                                                                                           \
	OPTION("dtype", 0, "TYPE", dtype, dtype,                                                               \
	       "f32, f64, f16, bf16, i32, c64 or c128; default: what the .npy says, f32 for .bin")
#define OPTION_PRECISION                                                                                       \
	OPTION("precision", 0, "P", precision, precision,                                                      \
	       "f32 (default), ieee (FMA only), tf32 or bf16: what a kernel may do to f32 input")
/* For verbs that compute; OPTIONS_JOB: for one op. */
#define OPTIONS_RUN                                                                                            \
	OPTION_DEVICE, OPTION("priority", 0, "P", priority, priority, "normal (default), high or low"),        \
	    OPTION_TIMEOUT_JOB,                                                                                \
	    OPTION("check", 0, NULL, switch, check,                                                            \
	           "compute it again here in float64 and compare; exit 5 if it differs"),                      \
	    OPTION("npy", 0, NULL, switch, npy, "to standard output as NumPy does, with a header"),            \
	    OPTION_JSON, OPTION("quiet", 'q', NULL, switch, quiet, "no receipt on stderr")
#define OPTIONS_JOB OPTION_KERNEL, OPTIONS_RUN
#define OPTION_OUTPUT                                                                                          \
	OPTION("output", 'o', "FILE", file, output,                                                            \
	       "write the result: c.npy as NumPy does, c.bin as raw elements, - to standard output")
#define SETTINGS_END                                                                                           \
	{                                                                                                      \
		0                                                                                              \
	}
/* The options of every command, and the end of the list. */
#define OPTIONS_END                                                                                            \
	OPTION(                                                                                                \
	    "socket", 0, "PATH", file, socket,                                                                 \
	    "kopsd's socket; default $KOPS_SOCKET, else one of the user's own, else /run/kopsd/kopsd.sock"),   \
	    OPTION("help", 'h', NULL, switch, help, "show this text"), SETTINGS_END

/*
 * Fills *flags with defaults and then from argv[1…]. Moves the other arguments to the front: *ret_argv and
 * *ret_argc. Returns KOPS_E_INVALID with a sentence in why (CLI_WHY_BYTES).
 */
int options_parse(const struct option_row *options, int argc, char **argv, struct flags *flags, int *ret_argc,
                  char ***ret_argv, char *why);

/* Returns false at the end of a list. */
bool options_is_row(const struct option_row *row);

/* Returns the row of that name, or NULL. */
const struct option_row *options_find(const struct option_row *rows, const char *name);

/*
 * Reads text into the row's member of *flags. If it is invalid, returns KOPS_E_INVALID with "NAME takes a
 * number, not 'x'" in why.
 */
int options_set(const struct option_row *row, const char *name, const char *text, struct flags *flags,
                char *why);

/* Prints the option table for -h on stdout. */
void options_help(const struct option_row *rows);

#endif
