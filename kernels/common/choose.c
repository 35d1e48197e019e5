/* choose.c: chooses the kernel that runs an op, and explains the choice. See kernel.h. */
#include "kernel.h"

#include <stdio.h>
#include <string.h>

static bool is_disabled(uint64_t disabled, size_t kernel)
{
	return kernel < 64 && (disabled >> kernel & 1);
}

/* Returns true if kernel i may run args; else *ret_why_not completes a sentence that begins with its name. */
static bool fits(const struct kernel_list *list, size_t i, const struct op_args *args, uint64_t disabled,
                 const char **ret_why_not)
{
	*ret_why_not = "failed its self-test";
	return !is_disabled(disabled, i) && list->kernels[i].supports(args, ret_why_not);
}

bool kernel_is_accurate(const struct kernel *kernel, const struct op_args *args, const char **ret_why_not)
{
	return !kernel->accurate || kernel->accurate(args, ret_why_not);
}

/* Returns the first kernel that may run args; list->n if there is none. */
static size_t first_fit(const struct kernel_list *list, const struct op_args *args, uint64_t disabled)
{
	const char *why_not;
	size_t i = 0;

	while (i < list->n && !fits(list, i, args, disabled, &why_not))
		i++;
	return i;
}

/* Appends what to do instead. */
static void advise(const struct kernel_list *list, size_t fit, char why[WHY_BYTES])
{
	size_t used = strlen(why);

	if (fit < list->n)
		snprintf(why + used, WHY_BYTES - used, "; \"%s\" would do", list->kernels[fit].name);
	else
		snprintf(why + used, WHY_BYTES - used, "; no other kernel of this device would do either");
}

static int refuse_unknown(const struct kernel_list *list, const struct op_args *args, const char *pinned,
                          char why[WHY_BYTES])
{
	size_t used = (size_t)snprintf(why, WHY_BYTES, "%s has no kernel \"%.40s\" on this device; it has",
	                               args->op->name, pinned);

	for (size_t i = 0; i < list->n && used < WHY_BYTES; i++)
		used += (size_t)snprintf(why + used, WHY_BYTES - used, "%s %s", i ? "," : "",
		                         list->kernels[i].name);
	return KOPS_E_UNSUPPORTED;
}

static int choose_pinned(const struct kernel_list *list, const struct op_args *args, const char *pinned,
                         uint64_t disabled, const struct kernel **ret_kernel, char why[WHY_BYTES])
{
	const char *why_not = "";
	size_t i = 0;

	while (i < list->n && strcmp(list->kernels[i].name, pinned) != 0)
		i++;
	if (i == list->n)
		return refuse_unknown(list, args, pinned, why);
	if (is_disabled(disabled, i)) {
		snprintf(why, WHY_BYTES, "%s kernel \"%s\" failed its self-test on this device", args->op->name,
		         pinned);
		advise(list, first_fit(list, args, disabled), why);
		return KOPS_E_UNSUPPORTED;
	}
	if (!list->kernels[i].supports(args, &why_not)) {
		snprintf(why, WHY_BYTES, "%s kernel \"%s\" %s", args->op->name, pinned, why_not);
		advise(list, first_fit(list, args, disabled), why);
		return KOPS_E_UNSUPPORTED;
	}
	*ret_kernel = &list->kernels[i];
	if (kernel_is_accurate(*ret_kernel, args, &why_not))
		snprintf(why, WHY_BYTES, "asked for by name");
	else
		snprintf(why, WHY_BYTES, "asked for by name; %s", why_not);
	return 0;
}

/* Returns true if `auto` may take kernel i. */
static bool is_candidate(const struct kernel_list *list, size_t i, const struct op_args *args,
                         uint64_t disabled, bool accurate, const char **ret_why_not)
{
	return fits(list, i, args, disabled, ret_why_not) &&
	       (!accurate || kernel_is_accurate(&list->kernels[i], args, ret_why_not));
}

/* Returns the first of the preferred kernels that may run args and is accurate; list->n if there is none. */
static size_t choose_preferred(const struct kernel_list *list, const struct op_args *args,
                               const struct preference *preferred, uint64_t disabled, char why[WHY_BYTES])
{
	const char *why_not = "";

	for (unsigned i = 0; preferred && i < preferred->n; i++) {
		size_t kernel = preferred->kernels[i];

		if (!is_candidate(list, kernel, args, disabled, true, &why_not))
			continue;
		snprintf(why, WHY_BYTES, "%s", preferred->why);
		return kernel;
	}
	return list->n;
}

struct estimate {
	size_t first, best; /* the first candidate, and the one to take; list->n if none */
	double first_ns, best_ns;
	const char *why_not_first; /* why kernels[0] is no candidate */
};

static void estimate(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                     bool accurate, struct estimate *ret)
{
	const char *why_not = "";

	*ret = (struct estimate){.first = list->n, .best = list->n, .why_not_first = ""};
	for (size_t i = 0; i < list->n; i++) {
		if (!is_candidate(list, i, args, disabled, accurate, &why_not)) {
			ret->why_not_first = i ? ret->why_not_first : why_not;
			continue;
		}
		double ns = list->kernels[i].time_ns(args);
		if (ret->first == list->n)
			*ret = (struct estimate){i, i, ns, ns, ret->why_not_first};
		else if (ns < ret->best_ns)
			ret->best = i, ret->best_ns = ns;
	}
}

unsigned kernel_rivals(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                       struct rival ret[RIVALS_MAX])
{
	const char *why_not;
	unsigned n = 0;

	if (view_elements(op_output_const(args)) == 0)
		return 0;
	for (size_t i = 0; i < list->n && n < RIVALS_MAX; i++)
		if (is_candidate(list, i, args, disabled, true, &why_not))
			ret[n++] = (struct rival){i, list->kernels[i].time_ns(args)};
	return n;
}

static void tell_estimate(const struct kernel_list *list, const struct op_args *args, const struct estimate *e,
                          char why[WHY_BYTES])
{
	if (e->best != e->first)
		snprintf(why, WHY_BYTES, "by estimate it takes %.1f us, %s %.1f us", e->best_ns / 1e3,
		         list->kernels[e->first].name, e->first_ns / 1e3);
	else if (e->first == 0)
		snprintf(why, WHY_BYTES, "first choice for %s %s", args->op->name,
		         dtype_name(op_output_const(args)->dtype));
	else
		snprintf(why, WHY_BYTES, "%s %s", list->kernels[0].name, e->why_not_first);
}

static size_t choose_estimated(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                               char why[WHY_BYTES])
{
	struct estimate e;

	estimate(list, args, disabled, true, &e);
	if (e.best == list->n)
		estimate(list, args, disabled, false, &e);
	if (e.best < list->n)
		tell_estimate(list, args, &e, why);
	return e.best;
}

/* Chooses for empty outputs: nothing is computed, so no time is estimated. */
static size_t choose_any(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                         char why[WHY_BYTES])
{
	snprintf(why, WHY_BYTES, "the output has no elements: nothing is computed");
	return first_fit(list, args, disabled);
}

static int refuse_all(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                      char why[WHY_BYTES])
{
	const char *why_not = "";
	size_t used = (size_t)snprintf(why, WHY_BYTES, "no kernel of this device can run this %s %s",
	                               args->op->name, dtype_name(op_output_const(args)->dtype));

	for (size_t i = 0; i < list->n && used < WHY_BYTES; i++) {
		fits(list, i, args, disabled, &why_not);
		used += (size_t)snprintf(why + used, WHY_BYTES - used, "%s %s %s", i ? ";" : ":",
		                         list->kernels[i].name, why_not);
	}
	return KOPS_E_UNSUPPORTED;
}

int kernel_choose(const struct kernel_list *list, const struct op_args *args, const char *pinned,
                  const struct preference *preferred, uint64_t disabled, const struct kernel **ret_kernel,
                  char why_text[WHY_BYTES])
{
	size_t i;

	if (list->n == 0) {
		snprintf(why_text, WHY_BYTES, "this device has no kernel for %s; try another device",
		         args->op->name);
		return KOPS_E_UNSUPPORTED;
	}
	if (pinned && *pinned)
		return choose_pinned(list, args, pinned, disabled, ret_kernel, why_text);
	if (view_elements(op_output_const(args)) == 0)
		i = choose_any(list, args, disabled, why_text);
	else
		i = choose_preferred(list, args, preferred, disabled, why_text);
	if (i == list->n)
		i = choose_estimated(list, args, disabled, why_text);
	if (i == list->n)
		return refuse_all(list, args, disabled, why_text);
	*ret_kernel = &list->kernels[i];
	return 0;
}

/* Appends as much of part as fits, and returns the new end. */
static char *append(char *to, const char *end, const char *part)
{
	size_t n = strlen(part), room = (size_t)(end - to) - 1;

	n = n < room ? n : room;
	memcpy(to, part, n);
	to[n] = '\0';
	return to + n;
}

void kernel_passed_over(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                        const struct kernel *chosen, char text[PASSED_OVER_BYTES])
{
	const char *end = text + PASSED_OVER_BYTES, *why_not = "";
	char *to = text;

	*to = '\0';
	for (size_t i = 0; i < list->n; i++) {
		if (&list->kernels[i] == chosen)
			continue;
		to = append(to, end, to > text ? ", " : "");
		to = append(to, end, list->kernels[i].name);
		if (is_candidate(list, i, args, disabled, true, &why_not))
			continue;
		to = append(to, end, " (");
		to = append(to, end, why_not);
		to = append(to, end, ")");
	}
}
