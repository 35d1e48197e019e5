/*
 * emulator.h: runs CUDA kernels for Hopper on the CPU, to find errors that the compiler cannot see.
 *
 * The host's compiler compiles the sources of kernels/ unchanged, with include/ in place of CUDA's headers, and
 * instructions.h in place of kernels/common/hopper/ and kernels/common/overlap.cuh.
 *
 * A further source takes a file like f16x3.cc, and an entry in check_emulated.c.
 *
 * Emulated are
 *   - grids, blocks and clusters, of which a random number has room at a time, and barriers of all;
 *   - mbarriers with their phases, arrivals and bytes;
 *   - copies by the copy engine: bulk, multicast, by tensor maps, both ways, with swizzles and edges; cp.async;
 *   - matrix descriptors, and products of a warpgroup from shared memory and from registers;
 *   - workspaces.
 *
 * A CUDA thread is a fiber. One runs at a time, in a random order that the seed determines. The clock advances
 * by leaps, as if others had the multiprocessor. Copies end at random times and spoil their target as soon as
 * they begin. Products are computed as late as a wait allows. So a missing wait, an early release or a wrong
 * parity shows as a wrong result, or as threads that wait for ever, which is reported.
 *
 * Also reported are copies and descriptors outside a block's shared memory, wrong alignments, too many
 * arrivals, and what is still under way when a block ends.
 *
 * Not emulated are: how long something takes; registers; fences, as all writes are visible at once; overlap of
 * successive kernels; the tensor cores' rounding (sums are exact here, then rounded). Nor is an error found if
 * these files misread the hardware's manual as the kernels do.
 */
#ifndef KOPS_EMULATOR_H
#define KOPS_EMULATOR_H

#include <deque>
#include <functional>
#include <map>
#include <ucontext.h>
#include <vector>

#include "cuda_runtime_api.h"

/* CUDA's own, set by launch(). */
extern uint3 gridDim, blockDim;

namespace emulator
{

constexpr unsigned WARP = 32, WARPGROUP = 128, SHARED_MAX = 227 * 1024;

struct block;

/* A product of a warpgroup that its threads have begun. */
struct product {
	void (*compute)(block &b, const product &p);
	unsigned begun; /* number of threads that have begun it */
	float *sums[WARPGROUP];
	const void *a_registers[WARPGROUP]; /* four of 32 bits, or null */
	uint64_t a, b;                      /* descriptors */
	bool keep;
};

/* A CUDA thread. */
struct fiber {
	ucontext_t context;
	emulator::block *block;
	uint3 thread;
	bool done;
	const char *awaits; /* for reports */
	unsigned products;  /* number of products begun */
	std::deque<unsigned> product_commits;
	struct copy {
		float *to;
		const float *from;
		unsigned there; /* bytes; zeros behind them */
	};
	std::vector<copy> elements;   /* to be done */
	std::vector<uint64_t> stores; /* not yet committed */
	std::deque<std::vector<uint64_t>> store_commits;
};

typedef std::vector<fiber *> waiting;

/*
 * Shared memory: its place, and its address for the block, which is aligned no better than the kernel asked
 * for.
 */
struct memory {
	char *data;
	uint32_t address;
};

/* A place where a number of threads wait for each other. */
struct meeting {
	unsigned arrived = 0;
	uint64_t round = 0;
	waiting fibers;
};

/* What threads of a block say at a barrier. */
struct vote {
	uint64_t round = UINT64_MAX;
	bool any = false;
};

struct warp {
	meeting met;
	uint64_t exchanged[2][WARP];
};

struct warpgroup {
	unsigned computed = 0;
	std::deque<product> under_way;
	waiting fibers;
};

struct mbarrier {
	unsigned count, pending;
	int64_t bytes;
	uint64_t phase;
	waiting fibers;
};

/* Blocks that can reach each other: a cluster. */
struct team {
	std::vector<block> blocks;
	meeting met;
};

struct block {
	emulator::team *team;
	unsigned index, rank; /* in the grid, in the team */
	std::vector<fiber> fibers;
	waiting ready;
	unsigned unfinished, copies_under_way;
	memory dynamic; /* dynamic shared memory, beside variables of fixed size */
	unsigned dynamic_bytes;
	meeting met[16];
	vote votes[2];
	std::vector<warp> warps;
	std::vector<warpgroup> warpgroups;
	std::map<uint32_t, mbarrier> mbarriers;
};

extern fiber *self;

/* Prints a sentence, the place, and how to reproduce it, and ends the program. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t random_below(uint64_t n);

/* Returns the time in clocks. */
int64_t now();

/* ---- Fibers ---- */

/* Lets others run or not, at random, where that might make a difference. */
void hesitate();
void yield();
/* Waits until someone wakes the waiting fibers; what: for reports. */
void wait(waiting &in, const char *what);
void wake(waiting &in);
void meet(meeting &m, unsigned threads, const char *what);
/* The same without waiting. */
void arrive(meeting &m, unsigned threads);
/* Waits for all threads of a cluster. */
void meet_team();
/* Returns the values of all lanes of this warp, each of which must call this; valid until the next call. */
const uint64_t *exchange(uint64_t value);

/* ---- Shared memory ---- */

uint32_t shared_address(const void *p);
/* Returns an address in a block's dynamic shared memory, which must have all the bytes. */
char *shared_at(block &b, uint32_t address, unsigned bytes);

mbarrier &mbarrier_at(block &b, uint32_t address);
void mbarrier_arrive(block &b, uint32_t address, unsigned expected_bytes);
void mbarrier_wait(uint32_t address, unsigned parity);

/* ---- What happens beside the fibers ---- */

/* Runs the event some time from now on. */
void happen_later(std::function<void()> event);
/* Writes to a block's shared memory some time from now on, and lets its barrier count the bytes. */
void copy_in(block &b, uint32_t to, unsigned bytes, uint32_t barrier, std::function<void(block &)> copy);
/* Copies some time from now on; zeros behind the first `there` bytes. */
void copy_element(float *to, const float *from, unsigned there);
/* Arrives once this thread's copies by copy_element() are done. */
void mbarrier_arrive_copied(uint32_t address);

/* Reads shared memory some time from now on, as a part of this fiber's next commit. */
void copy_out(std::function<void(block &)> copy);
void commit_copies_out();
void await_copies_out(unsigned left);

/* ---- Products ---- */

/* Begins the next product of this warpgroup. */
void begin_product(const product &like, float *sums, const void *a_registers);
void commit_products();
void await_products(unsigned left);

/* ---- Launches ---- */

struct form {
	unsigned blocks, threads, shared_bytes, cluster;
	memory (*dynamic_shared)(); /* of the calling thread's source */
};

extern unsigned row; /* along y of the grid: each row is launched by itself */

/* Returns when the kernel has ended. */
void launch(const form &form, const std::function<void()> &kernel);

} // namespace emulator

#endif
