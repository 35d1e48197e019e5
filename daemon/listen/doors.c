#include "listen/doors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/timers.h"
#include "share/closing.h"
#include "share/watch.h"

/*
 * Connections queue in the order in which they came, whatever their user, and each takes some 10 µs. A flood
 * fills any queue. So the queue is short during a flood: when it is full, waiting connections are accepted in
 * order, too. A user's own queue is always short.
 */
#define BACKLOG       SOMAXCONN
#define SHORT_BACKLOG 4
#define FLOOD_MS      1000
#define FLOOD         4096u /* connections in FLOOD_MS: by default as many as there may be sessions */

#define RETRY_MS 100

/* Users' doors may take one descriptor for every 16 sessions that the limit of descriptors allows. */
#define SESSIONS_PER_DOOR 16u
#define IDLE_NS           60000000000u /* a user's door that is unused for this long may be reused */

/* ---- Connections that cannot be accepted ---- */

static void open_reserve(struct doors *all)
{
	if (all->reserve_fd < 0)
		all->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Accepts a connection with the reserve descriptor and refuses it; otherwise it would wake the loop forever.
 * Returns false with errno if none was accepted. */
static bool shed(struct door *door)
{
	struct doors *all = door->all;
	int fd, error;

	if (log_may(&all->sheds))
		log_warning("out of file descriptors: a connection was refused; raise LimitNOFILE");
	if (all->reserve_fd >= 0)
		close(all->reserve_fd);
	all->reserve_fd = -1;
	fd = accept4(door->fd, NULL, NULL, SOCK_CLOEXEC);
	error = errno;
	if (fd >= 0) {
		sessions_turn_away(
		    all->sessions, fd,
		    "kopsd is out of file descriptors; try again later, or have LimitNOFILE raised");
		closing_add(&all->sessions->engine->accounts, NULL, fd);
	}
	open_reserve(all);
	errno = error;
	return fd >= 0;
}

static void on_connection(uv_poll_t *poll, int status, int events);

static void watch_door_again(uv_timer_t *retry);

static void watch_door(struct door *door)
{
	int rc;

	if (door->fd < 0 || uv_is_active((uv_handle_t *)&door->poll))
		return;
	rc = watch_start(&door->poll, UV_READABLE, on_connection);
	if (rc == 0)
		return;
	if (log_may(&door->all->sheds))
		log_warning("cannot watch a listening socket, so its connections wait: %s", uv_strerror(rc));
	timers_start(&door->all->retry, watch_door_again, RETRY_MS, 0);
}

static void unwatch_door(struct door *door)
{
	if (door->fd >= 0)
		uv_poll_stop(&door->poll);
}

static void each(struct doors *all, void (*action)(struct door *door))
{
	action(&all->main);
	for (unsigned i = 0; i < DOORS_USER_SLOTS; i++)
		action(&all->users[i]);
}

static void watch_door_again(uv_timer_t *retry)
{
	struct doors *all = retry->data;

	open_reserve(all);
	each(all, watch_door);
}

/* Stops watching for a while. The error may persist, and a waiting connection would wake the loop at once, for
 * nothing. */
static void pause_for(struct doors *all, int error)
{
	if (error != all->accept_error)
		log_error("cannot accept connections: %s; kopsd retries every %d ms", strerror(error),
		          RETRY_MS);
	all->accept_error = error;
	each(all, unwatch_door);
	timers_start(&all->retry, watch_door_again, RETRY_MS, 0);
}

/* ---- Floods ---- */

static bool is_flooded(const struct doors *all)
{
	return uv_is_active((const uv_handle_t *)&all->flood);
}

static void end_flood(struct doors *all)
{
	uv_timer_stop(&all->flood);
	listen(all->main.fd, BACKLOG);
}

static void on_flood_second(uv_timer_t *flood)
{
	struct doors *all = flood->data;

	if (all->n_taken < FLOOD)
		end_flood(all);
	all->n_taken = 0;
}

static void count_connection(struct doors *all)
{
	uint64_t now = clock_ns();

	all->n_taken++;
	if (is_flooded(all))
		return;
	if (now - all->counted_since_ns > FLOOD_MS * 1000000u) {
		all->counted_since_ns = now;
		all->n_taken = 1;
	}
	if (all->n_taken < FLOOD)
		return;
	all->n_taken = 0;
	listen(all->main.fd, SHORT_BACKLOG);
	timers_start(&all->flood, on_flood_second, FLOOD_MS, FLOOD_MS);
}

/* ---- One door ---- */

static bool take_connection(struct turns_waiter *waiter);

static int door_open(struct door *door, int fd, struct turns_user *user)
{
	int rc = uv_poll_init(door->all->sessions->engine->loop, &door->poll, fd);

	if (rc < 0)
		return rc;
	door->fd = fd;
	door->poll.data = door;
	/* Turns treat the door as unwatched: see on_connection(). */
	door->waiter = (struct turns_waiter){.user = user, .take = take_connection, .unwatched = true};
	return 0;
}

static void door_stop(struct door *door)
{
	unwatch_door(door);
	turns_leave(&door->waiter);
}

/* ---- Users' doors ---- */

static void on_door_closed(uv_handle_t *poll)
{
	struct door *door = poll->data;

	door->is_closing = false;
}

static void close_user_door(struct door *door)
{
	struct accounts *accounts = &door->all->sessions->engine->accounts;
	struct account *account = door->account;

	if (!account)
		return;
	door_stop(door);
	user_sockets_remove(&door->all->files, account->uid);
	door->is_closing = true;
	uv_close((uv_handle_t *)&door->poll, on_door_closed);
	closing_add(accounts, account, door->fd); /* with its waiting connections and what they sent */
	door->fd = -1;
	door->account = NULL;
	door->all->n_users--;
	account_unref(accounts, account);
}

static struct door *find_door(struct doors *all, const struct account *account)
{
	for (unsigned i = 0; i < DOORS_USER_SLOTS; i++)
		if (all->users[i].account == account)
			return &all->users[i];
	return NULL;
}

/* Returns an unused door that libuv has released; NULL: none. */
static struct door *find_free(struct doors *all)
{
	for (unsigned i = 0; i < DOORS_USER_SLOTS; i++)
		if (!all->users[i].account && !all->users[i].is_closing)
			return &all->users[i];
	return NULL;
}

static struct door *find_oldest(struct doors *all)
{
	struct door *oldest = NULL;

	for (unsigned i = 0; i < DOORS_USER_SLOTS; i++) {
		struct door *door = &all->users[i];

		if (door->account && (!oldest || door->used_ns < oldest->used_ns))
			oldest = door;
	}
	return oldest;
}

/* Makes room by closing at most one door, unused for a while. Otherwise a client that can act as many users
 * could take all doors. */
static struct door *make_room_for_connection(struct doors *all, uint64_t now)
{
	struct door *oldest;

	if (all->n_users < all->users_max)
		return find_free(all);
	oldest = find_oldest(all);
	if (!oldest || now - oldest->used_ns < IDLE_NS)
		return NULL;
	close_user_door(oldest);
	return find_free(all);
}

/* Gives the user, who just connected, a door. If that fails, the user uses the main door, and may get one
 * then. */
static void give_door(struct doors *all, struct account *account)
{
	uint64_t now = clock_ns();
	struct door *door;
	int fd;

	if (find_door(all, account))
		return;
	door = make_room_for_connection(all, now);
	fd = door ? user_sockets_add(&all->files, account->uid, SHORT_BACKLOG) : -1;
	if (fd < 0)
		return;
	if (door_open(door, fd, &account->turns) < 0) {
		user_sockets_remove(&all->files, account->uid);
		close(fd);
		return;
	}
	account_ref(account);
	door->account = account;
	door->used_ns = now;
	all->n_users++;
	watch_door(door);
	turns_charge(&all->sessions->turns, &account->turns);
}

static void close_user_doors(struct doors *all)
{
	for (unsigned i = 0; i < DOORS_USER_SLOTS; i++)
		close_user_door(&all->users[i]);
}

static void on_renew(uv_timer_t *renew)
{
	close_user_doors(renew->data);
}

/* ---- Accepting ---- */

static void arrive(struct doors *all, int fd)
{
	struct account *account;

	count_connection(all);
	account = session_arrive(all->sessions, fd);
	if (account)
		give_door(all, account);
}

/* If the access rights of everybody's socket changed, all must use the main door again. */
static void arrive_by_own(struct door *door, int fd)
{
	struct doors *all = door->all;

	if (user_sockets_are_current(&all->files)) {
		door->used_ns = clock_ns();
		session_arrive(all->sessions, fd);
		return;
	}
	closing_add(&all->sessions->engine->accounts, door->account, fd);
	timers_start(&all->renew, on_renew, 0, 0); /* deferred, because this may be a turn of such a door */
}

/* Returns true if there may be more connections. */
static bool take_connection(struct turns_waiter *waiter)
{
	struct door *door = container_of(waiter, struct door, waiter);
	int fd = accept4(door->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0) {
		door->all->accept_error = 0;
		if (door->account)
			arrive_by_own(door, fd);
		else
			arrive(door->all, fd);
		open_reserve(door->all); /* there may have been no descriptor for it before */
		return true;
	}
	if ((errno == EMFILE || errno == ENFILE) && shed(door))
		return true;
	if (errno == EAGAIN)
		watch_door(door);
	else
		pause_for(door->all, errno);
	return false;
}

/* libuv does not support SOCK_SEQPACKET, so this uses uv_poll_t and system calls. While the door waits for its
 * turn, the socket is not watched. */
static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct door *door = poll->data;

	(void)events;
	if (turns_is_waiting(&door->waiter))
		uv_poll_stop(poll);
	else if (status == 0)
		turns_wait(&door->all->sessions->turns, &door->waiter);
}

/* ---- All doors ---- */

static void door_init(struct doors *all, struct door *door)
{
	*door = (struct door){.all = all, .fd = -1};
}

void doors_init(struct doors *all, struct sessions *sessions)
{
	*all = (struct doors){.sessions = sessions, .reserve_fd = -1, .files.folder_fd = -1};
	door_init(all, &all->main);
	for (unsigned i = 0; i < DOORS_USER_SLOTS; i++)
		door_init(all, &all->users[i]);
}

/*
 * Connections inherit these options from the listening socket, which may be inherited itself
 * (PassCredentials=). With them, each datagram would seem to carry descriptors.
 */
static void take_no_credentials(int fd)
{
	const int options[] = {SO_PASSCRED, SO_PASSSEC}, no = 0;

	for (unsigned i = 0; i < sizeof options / sizeof options[0]; i++)
		setsockopt(fd, SOL_SOCKET, options[i], &no, sizeof no);
}

int doors_open(struct doors *all, int fd, char why[WHY_BYTES])
{
	struct sessions *sessions = all->sessions;
	int rc;

	take_no_credentials(fd);
	open_reserve(all);
	rc = door_open(&all->main, fd, &all->everybody);
	if (rc < 0) {
		snprintf(why, WHY_BYTES, "cannot watch the socket: %s", uv_strerror(rc));
		return KOPS_E_SYSTEM;
	}
	if (listen(fd, BACKLOG) < 0) { /* an inherited socket, too: the last kopsd may have died in a flood */
		snprintf(why, WHY_BYTES, "listen: %s", strerror(errno));
		return KOPS_E_SYSTEM;
	}
	sessions->engine->accounts.door = &all->everybody;
	all->users_max = sessions->max / SESSIONS_PER_DOOR;
	if (all->users_max >= DOORS_USER_SLOTS)
		all->users_max = DOORS_USER_SLOTS - 1;
	uv_timer_init(sessions->engine->timers, &all->retry);
	uv_timer_init(sessions->engine->timers, &all->flood);
	uv_timer_init(sessions->engine->timers, &all->renew);
	all->retry.data = all->flood.data = all->renew.data = all;
	user_sockets_open(&all->files, fd);
	return 0;
}

void doors_start(struct doors *all)
{
	watch_door(&all->main);
}

void doors_stop(struct doors *all)
{
	door_stop(&all->main);
	uv_timer_stop(&all->retry);
	uv_timer_stop(&all->renew);
	if (is_flooded(all))
		end_flood(all); /* for a successor, if the socket is inherited */
	close_user_doors(all);
	user_sockets_close(&all->files);
}

void doors_close(struct doors *all)
{
	if (all->reserve_fd >= 0)
		close(all->reserve_fd);
	all->reserve_fd = -1;
	user_sockets_close(&all->files); /* after a failed start */
}
