#include "screen.h"

#include <curses.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "show.h"
#include "utf8.h"

#define FIRST_LOOK_MS   250 /* rates need two snapshots */
#define INTERVAL_MS_MIN 100
#define INTERVAL_MS_MAX 60000

enum { COLOUR_NONE, COLOUR_CALM, COLOUR_BUSY, COLOUR_FULL };

struct screen {
	struct cli *cli;
	struct snapshot before, now;
	struct frame frame;
	enum top_sort sort;
	uint32_t interval_ms;
	bool has_colours;
	size_t top; /* first line on the screen */
	bool shows_help;
	uint64_t frames;
	double next_look_us;
	char error[CLI_WHY_BYTES]; /* why the last snapshot failed; "": it succeeded */
};

/* ---- Drawing ---- */

/* Returns false if there are no colours, or the user refuses them (https://no-color.org). */
static bool begin_colours(void)
{
	const char *no_color = getenv("NO_COLOR");

	if ((no_color && *no_color) || !has_colors() || start_color() == ERR)
		return false;
	use_default_colors();
	init_pair(COLOUR_CALM, COLOR_GREEN, -1);
	init_pair(COLOUR_BUSY, COLOR_YELLOW, -1);
	init_pair(COLOUR_FULL, COLOR_RED, -1);
	return true;
}

static short colour_of(const struct screen *s, double busy)
{
	if (!s->has_colours)
		return COLOUR_NONE;
	return busy < 0.5 ? COLOUR_CALM : busy < 0.9 ? COLOUR_BUSY : COLOUR_FULL;
}

/* Returns how many bytes of the text fit into `columns` columns. */
static int bytes_of(const char *text, int columns)
{
	int n = 0;

	while (text[n]) {
		uint32_t point = '?';
		unsigned bytes = utf8_decode(text + n, &point);
		columns -= utf8_columns(point);
		if (columns < 0)
			break;
		n += bytes ? (int)bytes : 1;
	}
	return n;
}

static void draw_line(const struct screen *s, int row, const struct line *line)
{
	if (line->look == LOOK_HEADING)
		attron(A_REVERSE);
	mvaddnstr(row, 0, line->text, bytes_of(line->text, COLS));
	for (int left = COLS - show_width(line->text); line->look == LOOK_HEADING && left > 0; left--)
		addch(' ');
	attroff(A_REVERSE);
	if (line->look == LOOK_DEVICE)
		mvchgat(row, FRAME_BAR_AT, FRAME_BAR_COLUMNS, A_BOLD, colour_of(s, line->busy), NULL);
}

static void draw_help(void)
{
	static const char *const lines[] = {
	    "Keys of kops-client top",
	    "",
	    "  q            quits",
	    "  h ?          this help; any key goes back",
	    "  space        looks now",
	    "  d j w p      sort by device time, jobs a second, waiting jobs, P99",
	    "  + -          half as often, twice as often",
	    "  arrows       scroll by a line; page keys by a page",
	    "  ^L           draws all again",
	    "",
	    "BUSY    share of the time in which kopsd had a job on the device",
	    "UTIL    share of the last second in which it worked, of a GPU for any program",
	    "MEMORY  in use, of all there is; of a session: that of its buffers",
	    "DEVICE  share of the time of devices that was the user's or session's",
	    "P50 P99 latency within which half of the latest jobs ended, and 99 % of them",
	    "RUNS    the job that started first: its first op and how many follow, parts done,",
	    "        how long it runs, and what it was planned to take",
	};

	for (int i = 0; i < (int)(sizeof(lines) / sizeof(lines[0])) && i < LINES - 1; i++)
		mvaddnstr(i, 0, lines[i], COLS);
}

static void draw_footer(const struct screen *s)
{
	char text[CLI_WHY_BYTES + 128];

	if (s->error[0])
		snprintf(text, sizeof(text), "%s", s->error);
	else
		snprintf(text, sizeof(text),
		         "q quit  h help  space now  sorted by %s: d j w p  every %g s: + -  arrows move",
		         top_sorts[s->sort], s->interval_ms / 1e3);
	attron(s->error[0] ? A_BOLD : A_DIM);
	mvaddnstr(LINES - 1, 0, text, bytes_of(text, COLS));
	attrset(A_NORMAL);
}

static size_t page_lines(void)
{
	return LINES > 2 ? (size_t)LINES - 1 : 1;
}

static void draw(struct screen *s)
{
	size_t last = s->frame.n > page_lines() ? s->frame.n - page_lines() : 0;

	s->top = s->top < last ? s->top : last;
	erase();
	for (size_t i = 0; !s->shows_help && i < page_lines() && s->top + i < s->frame.n; i++)
		draw_line(s, (int)i, &s->frame.lines[s->top + i]);
	if (s->shows_help)
		draw_help();
	draw_footer(s);
	refresh();
}

/* ---- Looking ---- */

/* Takes a snapshot. The screen stays even if that fails: kopsd may come back. */
static void look(struct screen *s)
{
	struct snapshot fresh;
	int status = snapshot_take(s->cli->handle, &fresh);

	s->error[0] = '\0';
	if (status < 0) {
		snprintf(s->error, sizeof(s->error), "%s", kops_error(s->cli->handle));
		return;
	}
	snapshot_free(&s->before);
	s->before = s->now;
	s->now = fresh;
	if (!s->before.info)
		return;
	if (frame_make(&s->frame, &s->before, &s->now, s->sort) < 0)
		snprintf(s->error, sizeof(s->error), "out of memory for all lines");
	s->frames++;
}

static void sort_by(struct screen *s, enum top_sort sort)
{
	s->sort = sort;
	if (s->before.info)
		frame_make(&s->frame, &s->before, &s->now, sort);
}

static void change_interval(struct screen *s, uint32_t ms)
{
	s->interval_ms = ms < INTERVAL_MS_MIN ? INTERVAL_MS_MIN : ms > INTERVAL_MS_MAX ? INTERVAL_MS_MAX : ms;
	s->next_look_us = cli_now_us() + s->interval_ms * 1e3;
}

/* ---- Keys ---- */

static void move_by(struct screen *s, long lines)
{
	s->top = lines < 0 && (size_t)-lines > s->top ? 0 : s->top + (size_t)lines;
}

/* Handles a key; ERR: none was pressed. Returns false at the end. */
static bool press(struct screen *s, int key)
{
	if (s->shows_help && key != '\f') {
		s->shows_help = key == ERR || key == KEY_RESIZE;
		return true;
	}
	switch (key) {
	case 'q':
		return false;
	case 'h':
	case '?':
		s->shows_help = true;
		break;
	case ' ':
		s->next_look_us = 0;
		break;
	case 'd':
		sort_by(s, TOP_DEVICE);
		break;
	case 'j':
		sort_by(s, TOP_JOBS);
		break;
	case 'w':
		sort_by(s, TOP_QUEUED);
		break;
	case 'p':
		sort_by(s, TOP_P99);
		break;
	case '+':
		change_interval(s, s->interval_ms * 2);
		break;
	case '-':
		change_interval(s, s->interval_ms / 2);
		break;
	case '\f':
		clearok(curscr, TRUE); /* redraws everything */
		break;
	case KEY_UP:
		move_by(s, -1);
		break;
	case KEY_DOWN:
		move_by(s, 1);
		break;
	case KEY_PPAGE:
		move_by(s, -(long)page_lines());
		break;
	case KEY_NPAGE:
		move_by(s, (long)page_lines());
		break;
	}
	return true;
}

/* ---- The screen ---- */

static void watch(struct screen *s)
{
	const struct opt_count *count = &s->cli->flags.count;
	int key;

	look(s);
	s->next_look_us = cli_now_us() + FIRST_LOOK_MS * 1e3;
	do {
		double left_us = s->next_look_us - cli_now_us();
		if (left_us <= 0) {
			look(s);
			left_us = s->interval_ms * 1e3;
			s->next_look_us = cli_now_us() + left_us;
		}
		draw(s);
		if (count->set && s->frames >= count->value)
			return;
		timeout((int)(left_us / 1e3) + 1);
		key = getch();
	} while (press(s, key));
}

int screen_run(struct cli *cli)
{
	struct screen s = {.cli = cli, .sort = cli->flags.sort, .interval_ms = cli->flags.interval_ms};
	const char *name = getenv("TERM");

	SCREEN *terminal = newterm(NULL, stdout, stdin);
	if (!terminal)
		return cli_fail(cli, CLI_FAILED, "unknown terminal type \"%s\"; --batch needs none",
		                name ? name : "");
	cbreak();
	noecho();
	curs_set(0);
	keypad(stdscr, TRUE);
	s.has_colours = begin_colours();
	watch(&s);
	endwin();
	delscreen(terminal);
	snapshot_free(&s.before);
	snapshot_free(&s.now);
	frame_free(&s.frame);
	return CLI_OK;
}
