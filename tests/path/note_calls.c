/*
 * note_calls.c: in a kopsd compiled with -finstrument-functions, records each call and return on the loop's
 * thread. At the end it writes them to the file that $NOTE_CALLS names, as words of 8 bytes: twice the
 * function's address, plus 1 for a return.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOTES_MAX (1u << 22)
#define NOT_NOTED __attribute__((no_instrument_function))

void __cyg_profile_func_enter(void *function, void *caller) NOT_NOTED;
void __cyg_profile_func_exit(void *function, void *caller) NOT_NOTED;

static uint64_t notes[NOTES_MAX];
static unsigned n_notes;

NOT_NOTED static bool is_loop_thread(void)
{
	static __thread pid_t tid;

	if (!tid)
		tid = gettid();
	return tid == getpid();
}

NOT_NOTED static void note(void *function, bool returns)
{
	if (n_notes < NOTES_MAX && is_loop_thread())
		notes[n_notes++] = (uint64_t)(uintptr_t)function << 1 | returns;
}

void __cyg_profile_func_enter(void *function, void *caller)
{
	(void)caller;
	note(function, false);
}

void __cyg_profile_func_exit(void *function, void *caller)
{
	(void)caller;
	note(function, true);
}

NOT_NOTED static __attribute__((destructor)) void write_notes(void)
{
	const char *path = getenv("NOTE_CALLS");
	FILE *file = path ? fopen(path, "we") : NULL;

	if (!file)
		return;
	fwrite(notes, sizeof notes[0], n_notes, file);
	fclose(file);
}
