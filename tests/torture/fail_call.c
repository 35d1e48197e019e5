/*
 * fail_call: preloaded into a program, it makes calls of functions fail, each once, with an errno that the
 * function really has. scripts/torture uses it. Environment:
 *
 *   TORTURE_PROGRAM   acts only in processes whose name starts with this, and counts calls from main() on
 *   TORTURE_SKIP      a part of a name: calls out of this file of code do not count. Some libraries, such as
 *                     OpenBLAS, end the process themselves.
 *   TORTURE_LOG       a file that gets a line "path FUNCTION NUMBER HASH FILE OFFSET" for each new path,
 *                     "failed FUNCTION NUMBER HASH" with the callers for each failed call, and finally "total
 *                     FUNCTION CALLS". A program and its children share it, and LOG.state beside it
 *   TORTURE_PATHS     the hashes of paths, with commas between; the first call of each fails
 *   TORTURE_FUNCTION  or else the function of which one call fails, and
 *   TORTURE_NTH       the number of that call, from 1 on
 *   TORTURE_RARE      if set, what seldom happens does: see the end of this file
 *
 * A path is the function and its callers, by their places in the code, wherever that was loaded. It is the same
 * in every run, while numbers depend on how threads interleave.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <link.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum { FRAMES = 24, DEPTH = 10, OBJECTS = 64, PATHS = 1 << 14, CHOSEN = 4, LINE_BYTES = 256, RARE_CPUS = 8 };

/* The functions that can fail: NAME, errno. Functions that never fail in the kernel or glibc are not listed. */
#define FUNCTIONS                                                                                              \
	X(malloc, ENOMEM)                                                                                      \
	X(calloc, ENOMEM)                                                                                      \
	X(realloc, ENOMEM)                                                                                     \
	X(aligned_alloc, ENOMEM)                                                                               \
	X(mmap, ENOMEM)                                                                                        \
	X(munmap, ENOMEM)                                                                                      \
	X(madvise, ENOMEM)                                                                                     \
	X(memfd_create, EMFILE)                                                                                \
	X(ftruncate, ENOSPC)                                                                                   \
	X(fallocate, ENOSPC)                                                                                   \
	X(fcntl, ENOMEM)                                                                                       \
	X(open, EMFILE)                                                                                        \
	X(openat, EMFILE)                                                                                      \
	X(fopen, EMFILE)                                                                                       \
	X(fdopen, ENOMEM)                                                                                      \
	X(opendir, EMFILE)                                                                                     \
	X(read, EIO)                                                                                           \
	X(pread, EIO)                                                                                          \
	X(write, ENOSPC)                                                                                       \
	X(pwrite, ENOSPC)                                                                                      \
	X(dup, EMFILE)                                                                                         \
	X(socket, EMFILE)                                                                                      \
	X(socketpair, EMFILE)                                                                                  \
	X(bind, ENOMEM)                                                                                        \
	X(listen, EADDRINUSE)                                                                                  \
	X(connect, EAGAIN)                                                                                     \
	X(accept4, EMFILE)                                                                                     \
	X(sendmsg, ENOBUFS)                                                                                    \
	X(sendto, ENOBUFS)                                                                                     \
	X(send, ENOBUFS)                                                                                       \
	X(recvmsg, ENOMEM)                                                                                     \
	X(recv, ENOMEM)                                                                                        \
	X(shutdown, ENOTCONN)                                                                                  \
	X(setsockopt, ENOMEM)                                                                                  \
	X(getsockopt, ENOMEM)                                                                                  \
	X(epoll_create1, EMFILE)                                                                               \
	X(epoll_ctl, ENOSPC)                                                                                   \
	X(eventfd, EMFILE)                                                                                     \
	X(pipe2, EMFILE)                                                                                       \
	X(timerfd_create, EMFILE)                                                                              \
	X(timer_create, EAGAIN)                                                                                \
	X(pthread_create, EAGAIN)                                                                              \
	X(poll, ENOMEM)                                                                                        \
	X(ppoll, ENOMEM)                                                                                       \
	X(flock, ENOLCK)                                                                                       \
	X(fstat, ENOMEM)                                                                                       \
	X(stat, ENOMEM)                                                                                        \
	X(lstat, ENOMEM)                                                                                       \
	X(fstatat, ENOMEM)                                                                                     \
	X(statfs, ENOMEM)                                                                                      \
	X(fstatfs, ENOMEM)                                                                                     \
	X(chmod, EROFS)                                                                                        \
	X(fchmod, EROFS)                                                                                       \
	X(setxattr, ENOSPC)                                                                                    \
	X(getxattr, ENOMEM)                                                                                    \
	X(lgetxattr, ENOMEM)                                                                                   \
	X(rename, ENOSPC)                                                                                      \
	X(unlink, EROFS)                                                                                       \
	X(unlinkat, EROFS)                                                                                     \
	X(mkdir, ENOSPC)                                                                                       \
	X(fsync, EIO)                                                                                          \
	X(fdatasync, EIO)                                                                                      \
	X(readlink, ENOMEM)                                                                                    \
	X(getrandom, EAGAIN)                                                                                   \
	X(getpwnam, EMFILE)                                                                                    \
	X(getgrnam, EMFILE)                                                                                    \
	X(fork, EAGAIN)                                                                                        \
	X(posix_spawn, EAGAIN)                                                                                 \
	X(posix_spawn_file_actions_init, ENOMEM)                                                               \
	X(posix_spawn_file_actions_adddup2, ENOMEM)                                                            \
	X(posix_fallocate, ENOSPC)                                                                             \
	X(fdopendir, ENOMEM)                                                                                   \
	X(scandir, EMFILE)                                                                                     \
	X(fgets, EIO)                                                                                          \
	X(__getdelim, EIO)                                                                                     \
	X(fflush, ENOSPC)                                                                                      \
	X(newlocale, ENOMEM)                                                                                   \
	X(dlopen, ENOMEM)                                                                                      \
	X(access, EACCES)                                                                                      \
	X(execv, ENOMEM)                                                                                       \
	X(ioctl, ENOTTY)                                                                                       \
	X(getsockname, ENOBUFS)                                                                                \
	X(sched_getaffinity, EINVAL)                                                                           \
	X(sched_setaffinity, EINVAL)                                                                           \
	X(setrlimit, EPERM)                                                                                    \
	X(rmdir, EROFS)                                                                                        \
	X(mremap, ENOMEM)                                                                                      \
	X(getcwd, ENOENT)

enum function {
#define X(name, error) F_##name,
	FUNCTIONS
#undef X
	    N_FUNCTIONS
};

static const struct {
	const char *name;
	int error;
} functions[] = {
#define X(name, error) {#name, error},
    FUNCTIONS
#undef X
};

/* A file of code and its load address. */
struct object {
	const char *name; /* "": the program */
	uintptr_t start, end;
	uint64_t name_hash;
	bool skipped;
};

/* A program and its children share this, so that a call fails in one of them only. */
static struct state {
	uint64_t paths[PATHS]; /* hashes of known paths; 0: free */
	unsigned calls[N_FUNCTIONS];
	bool have_failed[CHOSEN];
} * state;

static struct object objects[OBJECTS];
static unsigned n_objects;
static bool is_armed, is_rare;
static const char *log_path, *chosen, *skip;
static unsigned long chosen_nth;
static uint64_t chosen_paths[CHOSEN]; /* 0: none */
static _Thread_local __attribute__((tls_model("initial-exec"))) bool is_inside;

/* ---- The log; uses system calls, since it may be within any function ---- */

/* Opens the log for each line, since a program may close descriptors that it does not know. */
static int open_log(void)
{
	return log_path ? (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
}

static void __attribute__((format(printf, 1, 2))) note(const char *format, ...)
{
	char line[LINE_BYTES];
	va_list args;
	int n, fd = open_log();

	if (fd < 0)
		return;
	va_start(args, format);
	n = vsnprintf(line, sizeof line, format, args);
	va_end(args);
	syscall(SYS_write, fd, line, (size_t)n);
	syscall(SYS_close, fd);
}

/* ---- Paths ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
	return hash ^ hash >> 29;
}

static uint64_t hash_text(const char *text)
{
	uint64_t hash = 1;

	for (; *text; text++)
		hash = mix(hash, (unsigned char)*text);
	return hash;
}

static const struct object *object_of(const void *address)
{
	for (unsigned i = 0; i < n_objects; i++)
		if ((uintptr_t)address >= objects[i].start && (uintptr_t)address < objects[i].end)
			return &objects[i];
	return NULL;
}

static int add_object(struct dl_phdr_info *info, size_t size, void *unused)
{
	const char *base = strrchr(info->dlpi_name, '/');
	struct object *o = &objects[n_objects];

	(void)size;
	(void)unused;
	if (n_objects == OBJECTS)
		return 1;
	*o = (struct object){.start = UINTPTR_MAX};
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_LOAD)
			continue;
		if (info->dlpi_addr + p->p_vaddr < o->start)
			o->start = info->dlpi_addr + p->p_vaddr;
		if (info->dlpi_addr + p->p_vaddr + p->p_memsz > o->end)
			o->end = info->dlpi_addr + p->p_vaddr + p->p_memsz;
	}
	if (object_of((const void *)o->start))
		return 0;                         /* already known */
	base = base ? base + 1 : info->dlpi_name; /* "" is the program */
	o->name = base;
	o->name_hash = hash_text(base);
	o->skipped = skip && *skip && strstr(*base ? base : program_invocation_short_name, skip);
	n_objects++;
	return 0;
}

static bool is_ours(const struct object *o)
{
	return o && (uintptr_t)functions >= o->start && (uintptr_t)functions < o->end;
}

/* Returns 0 if this call does not count. ret_from: the call's return address. */
static uint64_t path_of_call(enum function function, const void **ret_from)
{
	void *frames[FRAMES];
	int n = backtrace(frames, FRAMES), depth = 0;
	uint64_t hash = mix(2, (uint64_t)function);

	for (int i = 0; i < n && depth < DEPTH; i++) {
		const struct object *o = object_of(frames[i]);

		if (is_ours(o))
			continue;
		if (depth == 0)
			*ret_from = frames[i];
		if (depth++ == 0 && o && o->skipped)
			return 0;
		hash = mix(hash, o ? mix(o->name_hash, (uintptr_t)frames[i] - o->start) : 3);
	}
	return hash ? hash : 1;
}

static bool is_new(uint64_t path)
{
	for (unsigned i = 0; i < PATHS; i++) {
		uint64_t *place = &state->paths[(path + i) % PATHS], none = 0;

		if (__atomic_compare_exchange_n(place, &none, path, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return true;
		if (none == path)
			return false;
	}
	return false;
}

static void note_path(enum function function, unsigned number, uint64_t path, const void *from)
{
	const struct object *o = object_of(from);

	note("path %s %u %016llx %s %#lx\n", functions[function].name, number, (unsigned long long)path,
	     o && *o->name ? o->name : "program", o ? (uintptr_t)from - o->start : 0);
}

static void note_failure(enum function function, unsigned number, uint64_t path)
{
	void *frames[FRAMES];
	int fd;

	note("failed %s %u %016llx\n", functions[function].name, number, (unsigned long long)path);
	fd = open_log();
	if (fd < 0)
		return;
	backtrace_symbols_fd(frames, backtrace(frames, FRAMES), fd);
	syscall(SYS_close, fd);
}

/* Returns the index of the call among those chosen, or -1. */
static int find_chosen(enum function function, unsigned number, uint64_t path)
{
	if (chosen && number == chosen_nth && strcmp(chosen, functions[function].name) == 0)
		return 0;
	for (int i = 0; i < CHOSEN; i++)
		if (path == chosen_paths[i])
			return i;
	return -1;
}

static bool counts_and_fails(enum function function)
{
	const void *from = NULL;
	uint64_t path = path_of_call(function, &from);
	unsigned number;
	int i;

	if (path == 0)
		return false;
	number = __atomic_add_fetch(&state->calls[function], 1, __ATOMIC_RELAXED);
	if (is_new(path))
		note_path(function, number, path, from);
	i = find_chosen(function, number, path);
	if (i < 0 || __atomic_exchange_n(&state->have_failed[i], true, __ATOMIC_RELAXED))
		return false;
	note_failure(function, number, path);
	return true;
}

static bool fails(enum function function)
{
	int saved = errno;
	bool yes;

	if (!is_armed || is_inside)
		return false;
	is_inside = true;
	yes = counts_and_fails(function);
	is_inside = false;
	errno = yes ? functions[function].error : saved;
	return yes;
}

/* ---- Start and end ---- */

static int (*main_of_program)(int, char **, char **);

static int create(const char *path)
{
	return (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
}

/* Creates the log and its state, unless the parent process did. Returns true on success. */
static bool open_state(void)
{
	char path[PATH_MAX];
	void *mapped;
	int fd;

	syscall(SYS_close, create(log_path));
	snprintf(path, sizeof path, "%s.state", log_path);
	fd = create(path);
	if (fd < 0 || syscall(SYS_ftruncate, fd, sizeof *state) < 0)
		return false;
	mapped = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	syscall(SYS_close, fd);
	state = mapped == MAP_FAILED ? NULL : mapped;
	return state;
}

static void read_chosen_paths(const char *text)
{
	char *end;

	for (unsigned i = 0; text && *text && i < CHOSEN; i++) {
		chosen_paths[i] = strtoull(text, &end, 16);
		text = *end ? end + 1 : end;
	}
}

/* Counts calls from here on, since main() begins. */
static int armed_main(int argc, char **argv, char **environment)
{
	const char *program = getenv("TORTURE_PROGRAM"), *text;
	void *frame[1];

	log_path = getenv("TORTURE_LOG");
	if (program && log_path && strncmp(program, program_invocation_short_name, strlen(program)) == 0) {
		backtrace(frame, 1); /* loads the library that it needs */
		skip = getenv("TORTURE_SKIP");
		chosen = getenv("TORTURE_FUNCTION");
		text = getenv("TORTURE_NTH");
		is_rare = getenv("TORTURE_RARE");
		chosen_nth = text ? strtoul(text, NULL, 10) : 0;
		read_chosen_paths(getenv("TORTURE_PATHS"));
		dl_iterate_phdr(add_object, NULL);
		is_armed = open_state();
	}
	return main_of_program(argc, argv, environment);
}

int __libc_start_main(int (*program)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end);

int __libc_start_main(int (*program)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
	__typeof__(&__libc_start_main) real = dlsym(RTLD_NEXT, "__libc_start_main");

	main_of_program = program;
	return real(armed_main, argc, argv, init, fini, rtld_fini, stack_end);
}

static __attribute__((destructor)) void end(void)
{
	if (!is_armed)
		return;
	is_armed = false;
	for (unsigned i = 0; i < N_FUNCTIONS; i++)
		if (state->calls[i] > 0)
			note("total %s %u\n", functions[i].name, state->calls[i]);
}

/* ---- The functions ---- */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *address, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
	return fails(F_malloc) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	return fails(F_calloc) ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *address, size_t bytes)
{
	return fails(F_realloc) ? NULL : __libc_realloc(address, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	return fails(F_aligned_alloc) ? NULL : __libc_memalign(alignment, bytes);
}

#define REAL(name) ((__typeof__(&name))find(&real_##name, #name))

static void *find(void **real, const char *name)
{
	bool was_inside = is_inside;

	if (!*real) {
		is_inside = true; /* dlsym() may allocate */
		*real = dlsym(RTLD_NEXT, name);
		is_inside = was_inside;
	}
	return *real;
}

#define WRAP(type, name, failed, parameters, arguments)                                                        \
	static void *real_##name;                                                                              \
	type name parameters                                                                                   \
	{                                                                                                      \
		return fails(F_##name) ? failed : REAL(name) arguments;                                        \
	}

/* Returns true for regular files and sockets. Reading and writing own events and pipes never fails. */
static bool may_fail(int fd)
{
	struct stat st;

	return is_armed && syscall(SYS_fstat, fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
}

#define WRAP_IO(type, name, parameters, arguments)                                                             \
	static void *real_##name;                                                                              \
	type name parameters                                                                                   \
	{                                                                                                      \
		return may_fail(fd) && fails(F_##name) ? -1 : REAL(name) arguments;                            \
	}

WRAP(void *, mmap, MAP_FAILED, (void *at, size_t n, int protection, int flags, int fd, off_t offset),
     (at, n, protection, flags, fd, offset))
WRAP(int, munmap, -1, (void *at, size_t n), (at, n))
WRAP(int, madvise, -1, (void *at, size_t n, int advice), (at, n, advice))
WRAP(int, memfd_create, -1, (const char *name, unsigned flags), (name, flags))
WRAP(int, ftruncate, -1, (int fd, off_t n), (fd, n))
WRAP(int, fallocate, -1, (int fd, int mode, off_t from, off_t n), (fd, mode, from, n))
WRAP(FILE *, fopen, NULL, (const char *path, const char *mode), (path, mode))
WRAP(FILE *, fdopen, NULL, (int fd, const char *mode), (fd, mode))
WRAP(DIR *, opendir, NULL, (const char *path), (path))
WRAP_IO(ssize_t, pread, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
WRAP_IO(ssize_t, write, (int fd, const void *from, size_t n), (fd, from, n))
WRAP_IO(ssize_t, pwrite, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at))
WRAP(int, dup, -1, (int fd), (fd))
WRAP(int, socket, -1, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, socketpair, -1, (int domain, int type, int protocol, int fds[2]), (domain, type, protocol, fds))
WRAP(int, bind, -1, (int fd, const struct sockaddr *address, socklen_t n), (fd, address, n))
WRAP(int, listen, -1, (int fd, int n), (fd, n))
WRAP(int, connect, -1, (int fd, const struct sockaddr *address, socklen_t n), (fd, address, n))
WRAP(int, accept4, -1, (int fd, struct sockaddr *address, socklen_t *n, int flags), (fd, address, n, flags))
WRAP(ssize_t, sendmsg, -1, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
WRAP(ssize_t, sendto, -1,
     (int fd, const void *from, size_t n, int flags, const struct sockaddr *to, socklen_t to_n),
     (fd, from, n, flags, to, to_n))
WRAP(ssize_t, send, -1, (int fd, const void *from, size_t n, int flags), (fd, from, n, flags))
WRAP(ssize_t, recvmsg, -1, (int fd, struct msghdr *message, int flags), (fd, message, flags))
WRAP(ssize_t, recv, -1, (int fd, void *to, size_t n, int flags), (fd, to, n, flags))
WRAP(int, shutdown, -1, (int fd, int how), (fd, how))
WRAP(int, setsockopt, -1, (int fd, int level, int name, const void *value, socklen_t n),
     (fd, level, name, value, n))
WRAP(int, getsockopt, -1, (int fd, int level, int name, void *value, socklen_t *n), (fd, level, name, value, n))
WRAP(int, epoll_create1, -1, (int flags), (flags))
WRAP(int, eventfd, -1, (unsigned value, int flags), (value, flags))
WRAP(int, pipe2, -1, (int fds[2], int flags), (fds, flags))
WRAP(int, timerfd_create, -1, (int clock, int flags), (clock, flags))
WRAP(int, timer_create, -1, (clockid_t clock, struct sigevent *event, timer_t *timer), (clock, event, timer))
WRAP(int, pthread_create, EAGAIN,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*fn)(void *), void *arg),
     (thread, attributes, fn, arg))
WRAP(int, poll, -1, (struct pollfd * fds, nfds_t n, int timeout_ms), (fds, n, timeout_ms))
WRAP(int, ppoll, -1, (struct pollfd * fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask),
     (fds, n, timeout, mask))
WRAP(int, flock, -1, (int fd, int operation), (fd, operation))
WRAP(int, fstat, -1, (int fd, struct stat *st), (fd, st))
WRAP(int, stat, -1, (const char *path, struct stat *st), (path, st))
WRAP(int, lstat, -1, (const char *path, struct stat *st), (path, st))
WRAP(int, fstatat, -1, (int fd, const char *path, struct stat *st, int flags), (fd, path, st, flags))
WRAP(int, statfs, -1, (const char *path, struct statfs *st), (path, st))
WRAP(int, fstatfs, -1, (int fd, struct statfs *st), (fd, st))
WRAP(int, chmod, -1, (const char *path, mode_t mode), (path, mode))
WRAP(int, fchmod, -1, (int fd, mode_t mode), (fd, mode))
WRAP(int, setxattr, -1, (const char *path, const char *name, const void *value, size_t n, int flags),
     (path, name, value, n, flags))
WRAP(ssize_t, getxattr, -1, (const char *path, const char *name, void *value, size_t n), (path, name, value, n))
WRAP(ssize_t, lgetxattr, -1, (const char *path, const char *name, void *value, size_t n),
     (path, name, value, n))
WRAP(int, rename, -1, (const char *from, const char *to), (from, to))
WRAP(int, unlink, -1, (const char *path), (path))
WRAP(int, unlinkat, -1, (int fd, const char *path, int flags), (fd, path, flags))
WRAP(int, mkdir, -1, (const char *path, mode_t mode), (path, mode))
WRAP(int, fsync, -1, (int fd), (fd))
WRAP(int, fdatasync, -1, (int fd), (fd))
WRAP(ssize_t, readlink, -1, (const char *path, char *to, size_t n), (path, to, n))
WRAP(ssize_t, getrandom, -1, (void *to, size_t n, unsigned flags), (to, n, flags))

/* glibc crashes if it runs out of memory within these two, so what they call does not count. */
#define WRAP_WHOLE(type, name, failed, parameters, arguments)                                                  \
	static void *real_##name;                                                                              \
	type name parameters                                                                                   \
	{                                                                                                      \
		bool was_inside = is_inside, has_to_fail = fails(F_##name);                                    \
		type result = failed;                                                                          \
                                                                                                               \
		is_inside = true;                                                                              \
		if (!has_to_fail)                                                                              \
			result = REAL(name) arguments;                                                         \
		is_inside = was_inside;                                                                        \
		return result;                                                                                 \
	}

WRAP_WHOLE(struct passwd *, getpwnam, NULL, (const char *name), (name))
WRAP_WHOLE(struct group *, getgrnam, NULL, (const char *name), (name))

WRAP(pid_t, fork, -1, (void), ())
WRAP(int, posix_spawn, EAGAIN,
     (pid_t * pid, const char *path, const posix_spawn_file_actions_t *actions,
      const posix_spawnattr_t *attributes, char *const argv[], char *const environment[]),
     (pid, path, actions, attributes, argv, environment))
WRAP(int, posix_spawn_file_actions_init, ENOMEM, (posix_spawn_file_actions_t * actions), (actions))
WRAP(int, posix_spawn_file_actions_adddup2, ENOMEM, (posix_spawn_file_actions_t * actions, int from, int to),
     (actions, from, to))
WRAP(int, posix_fallocate, ENOSPC, (int fd, off_t from, off_t n), (fd, from, n))
WRAP(DIR *, fdopendir, NULL, (int fd), (fd))
WRAP(int, scandir, -1,
     (const char *path, struct dirent ***list, int (*wanted)(const struct dirent *),
      int (*compare)(const struct dirent **, const struct dirent **)),
     (path, list, wanted, compare))
WRAP(int, fflush, -1, (FILE * file), (file))
WRAP(locale_t, newlocale, NULL, (int mask, const char *name, locale_t base), (mask, name, base))
WRAP(int, access, -1, (const char *path, int mode), (path, mode))
WRAP(int, execv, -1, (const char *path, char *const argv[]), (path, argv))
WRAP(int, getsockname, -1, (int fd, struct sockaddr *address, socklen_t *n), (fd, address, n))
WRAP(int, sched_setaffinity, -1, (pid_t pid, size_t n, const cpu_set_t *set), (pid, n, set))
WRAP(int, setrlimit, -1, (__rlimit_resource_t what, const struct rlimit *limit), (what, limit))
WRAP(int, rmdir, -1, (const char *path), (path))
WRAP(char *, getcwd, NULL, (char *to, size_t n), (to, n))

/* Callers tell an error from the end of a file by its error flag, so this sets the flag. */
static bool read_fails(enum function function, FILE *file)
{
	if (!fails(function))
		return false;
	fputc(0, file); /* an error, since the file is open for reading only */
	errno = functions[function].error;
	return true;
}

static void *real_fgets;
char *fgets(char *to, int n, FILE *file)
{
	return read_fails(F_fgets, file) ? NULL : REAL(fgets)(to, n, file);
}

static void *real___getdelim;
ssize_t __getdelim(char **line, size_t *capacity, int delimiter, FILE *file)
{
	return read_fails(F___getdelim, file) ? -1 : REAL(__getdelim)(line, capacity, delimiter, file);
}

static void *real_dlopen;
void *dlopen(const char *path, int flags)
{
	/* The real function must fail too, so that dlerror() has a reason. */
	void *handle = REAL(dlopen)(fails(F_dlopen) ? "/nonexistent" : path, flags);

	if (is_armed)
		dl_iterate_phdr(add_object, NULL);
	return handle;
}

/* A timer has nothing to read if it was set again after poll() told of it. */
static bool is_timer(int fd)
{
	struct itimerspec left;

	return is_armed && timerfd_gettime(fd, &left) == 0;
}

static void *real_read;
ssize_t read(int fd, void *to, size_t n)
{
	bool timer = is_timer(fd);

	if (!(timer || may_fail(fd)) || !fails(F_read))
		return REAL(read)(fd, to, n);
	if (timer)
		errno = EAGAIN;
	return -1;
}

static void *real_mremap;
void *mremap(void *from, size_t old_n, size_t new_n, int flags, ...)
{
	va_list args;
	void *to;

	va_start(args, flags);
	to = va_arg(args, void *);
	va_end(args);
	return fails(F_mremap) ? MAP_FAILED : REAL(mremap)(from, old_n, new_n, flags, to);
}

static void *real_ioctl;
int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *argument;

	va_start(args, request);
	argument = va_arg(args, void *);
	va_end(args);
	return fails(F_ioctl) ? -1 : REAL(ioctl)(fd, request, argument);
}

/* Modifying and removing need no resources, so only adding fails. */
static void *real_epoll_ctl;
int epoll_ctl(int set, int op, int fd, struct epoll_event *event)
{
	bool has_to_fail = op == EPOLL_CTL_ADD && fails(F_epoll_ctl);
	int rc = REAL(epoll_ctl)(set, op, fd, event);

	if (rc < 0 || !has_to_fail) /* what exists already needs nothing: EEXIST */
		return rc;
	REAL(epoll_ctl)(set, EPOLL_CTL_DEL, fd, NULL);
	errno = functions[F_epoll_ctl].error;
	return -1;
}

static void *real_fcntl;
int fcntl(int fd, int command, ...)
{
	va_list args;
	long argument;

	va_start(args, command);
	argument = va_arg(args, long);
	va_end(args);
	return fails(F_fcntl) ? -1 : REAL(fcntl)(fd, command, argument);
}

static void *real_open;
int open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = va_arg(args, mode_t);
	va_end(args);
	return fails(F_open) ? -1 : REAL(open)(path, flags, mode);
}

static void *real_openat;
int openat(int folder, const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = va_arg(args, mode_t);
	va_end(args);
	return fails(F_openat) ? -1 : REAL(openat)(folder, path, flags, mode);
}

/* Names for programs with 64-bit offsets; they are the same functions here. */
int fcntl64(int, int, ...) __attribute__((alias("fcntl")));
int open64(const char *, int, ...) __attribute__((alias("open")));
int fstat64(int, struct stat64 *) __attribute__((alias("fstat")));
int stat64(const char *, struct stat64 *) __attribute__((alias("stat")));
int lstat64(const char *, struct stat64 *) __attribute__((alias("lstat")));
int ftruncate64(int, off64_t) __attribute__((alias("ftruncate")));
ssize_t pread64(int, void *, size_t, off64_t) __attribute__((alias("pread")));
ssize_t pwrite64(int, const void *, size_t, off64_t) __attribute__((alias("pwrite")));

/*
 * ---- What seldom happens, does ----
 *
 * OpenBLAS does not know the CPU. There are many CPUs, and yet all threads meet on one and wait there for each
 * other. A receiver of kopsd that closes a pipe hangs until the other end is closed, as with a file of a server
 * that is gone.
 */

char *openblas_get_corename(void);

static void *real_openblas_get_corename;
char *openblas_get_corename(void)
{
	static char unknown[] = "Prescott";

	return is_rare ? unknown : REAL(openblas_get_corename)();
}

static void *real_sched_getaffinity;
int sched_getaffinity(pid_t pid, size_t n, cpu_set_t *set)
{
	int rc = fails(F_sched_getaffinity) ? -1 : REAL(sched_getaffinity)(pid, n, set);

	for (size_t cpu = 0; is_rare && rc == 0 && cpu < RARE_CPUS; cpu++)
		CPU_SET_S(cpu, n, set);
	return rc;
}

static void *real_sched_getcpu;
int sched_getcpu(void)
{
	return is_rare ? 0 : REAL(sched_getcpu)();
}

static void *real_sched_yield;
int sched_yield(void)
{
	if (is_rare)
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	return REAL(sched_yield)();
}

static void *real_getrusage;
int getrusage(__rusage_who_t who, struct rusage *used)
{
	static long switches;
	int rc = REAL(getrusage)(who, used);

	if (is_rare && rc == 0)
		used->ru_nivcsw += __atomic_add_fetch(&switches, 1, __ATOMIC_RELAXED);
	return rc;
}

static bool hangs_in_close(int fd)
{
	struct stat st;

	return is_rare && strstr(program_invocation_short_name, "receiver") &&
	       syscall(SYS_fstat, fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

int close(int fd)
{
	struct pollfd other_end = {.fd = fd};

	while (hangs_in_close(fd) && syscall(SYS_poll, &other_end, 1, -1) < 0)
		; /* a signal came */
	return (int)syscall(SYS_close, fd);
}
