/* emulator.cc: fibers, their barriers, and what happens beside them. */
#include "emulator.h"

#include <algorithm>
#include <errno.h>
#include <memory>
#include <random>
#include <semaphore.h>
#include <set>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "common/cuda.h"
#include "described.h"
#include "emulated.h"

uint3 gridDim, blockDim;

namespace emulator
{

fiber *self;

/* ---- The GPU ---- */

static struct {
	unsigned multiprocessors;
	const char *text;
	std::mt19937_64 random;
} gpu;

uint64_t random_below(uint64_t n)
{
	return gpu.random() % n;
}

void fail(const char *format, ...)
{
	va_list arguments;

	fflush(stdout);
	fprintf(stderr, "FAILED in a kernel");
	if (self)
		fprintf(stderr, ", block %u thread %u", self->block->index, self->thread.x);
	fprintf(stderr, ": ");
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n  %s\n", gpu.text);
	_exit(1);
}

/* ---- Events: what the copy engine does ---- */

static std::vector<std::function<void()>> events;
static unsigned event_patience; /* one in so many steps is an event */

void happen_later(std::function<void()> event)
{
	events.push_back(std::move(event));
}

static void happen()
{
	std::swap(events[random_below(events.size())], events.back());
	std::function<void()> event = std::move(events.back());

	events.pop_back();
	event();
}

/* ---- The clock ---- */

static int64_t clocks;
static unsigned clock_patience; /* one in so many looks at it finds that long has passed */

int64_t now()
{
	constexpr int64_t LONG = 1 << 30;

	clocks += random_below(clock_patience) == 0 ? LONG : 1;
	return clocks;
}

/* ---- The threads of blocks ---- */

constexpr size_t STACK_BYTES = 48 << 10, GUARD_BYTES = 4 << 10;

/*
 * Runs the fibers of a block, and so has what the kernel declares __shared__, which is thread_local here. Only
 * one thread of the process runs at a time.
 */
struct worker {
	ucontext_t context;
	sem_t go, back;
	std::function<void()> task; /* empty: to end */
	std::vector<char *> stacks;
	std::thread thread;

	worker();
	~worker();
	/* Returns when the task is done. */
	void run(std::function<void()> task);
	/* Tasks. */
	void begin(block &b);
	void run_for_a_while(block &b);
};

static std::vector<std::unique_ptr<worker>> workers;
static const form *launched;
static const std::function<void()> *kernel;
static worker *running;

/* A stack and its guard are two mappings, of which a process may have 65530. The stacks beyond have no guard.
 */
static char *new_stack()
{
	void *stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (stack == MAP_FAILED || (mprotect(stack, GUARD_BYTES, PROT_NONE) != 0 && errno != ENOMEM))
		fail("no memory for a fiber");
	return (char *)stack;
}

static void leave()
{
	swapcontext(&self->context, &running->context);
}

static void end_of_block(block &b)
{
	if (b.copies_under_way != 0)
		fail("the block ends with %u copies to or from its shared memory under way",
		     b.copies_under_way);
}

static void run_fiber()
{
	(*kernel)();
	self->done = true;
	if (!self->stores.empty())
		fail("the thread ends with stores that it has not committed");
	if (self->block->warpgroups.size() > self->thread.x / WARPGROUP &&
	    self->block->warpgroups[self->thread.x / WARPGROUP].computed < self->products)
		fail("the thread ends with products under way");
	if (--self->block->unfinished == 0)
		end_of_block(*self->block);
	leave();
}

worker::worker()
{
	sem_init(&go, 0, 0);
	sem_init(&back, 0, 0);
	thread = std::thread([this] {
		for (sem_wait(&go); task; sem_wait(&go)) {
			task();
			sem_post(&back);
		}
	});
}

worker::~worker()
{
	task = nullptr;
	sem_post(&go);
	thread.join();
	sem_destroy(&go);
	sem_destroy(&back);
	for (char *stack : stacks)
		munmap(stack, STACK_BYTES);
}

void worker::run(std::function<void()> next)
{
	task = std::move(next);
	sem_post(&go);
	sem_wait(&back);
}

void worker::begin(block &b)
{
	b.dynamic = launched->dynamic_shared();
	if (b.dynamic_bytes)
		memset(b.dynamic.data, 0xff, b.dynamic_bytes);
	while (stacks.size() < b.fibers.size())
		stacks.push_back(new_stack());
	for (size_t i = 0; i < b.fibers.size(); i++) {
		fiber &f = b.fibers[i];
		f.block = &b;
		f.thread = {(unsigned)i, 0, 0};
		getcontext(&f.context);
		f.context.uc_stack.ss_sp = stacks[i];
		f.context.uc_stack.ss_size = STACK_BYTES;
		makecontext(&f.context, run_fiber, 0);
		b.ready.push_back(&f);
	}
}

/* Who of those that could run does: anyone, or some get as far as they can while others wait. */
enum order { ANY, NEWEST, OLDEST, ONE_WARP, ORDERS };

/* Null: nobody. */
static fiber *take_ready(waiting &ready, order by, unsigned warp)
{
	size_t i = by == ANY ? random_below(ready.size()) : by == NEWEST ? ready.size() - 1 : 0;

	while (by == ONE_WARP && i < ready.size() && ready[i]->thread.x / WARP != warp)
		i++;
	if (i == ready.size())
		return nullptr;
	fiber *f = ready[i];
	ready.erase(ready.begin() + (ptrdiff_t)i);
	return f;
}

void worker::run_for_a_while(block &b)
{
	static const unsigned most[] = {100, 1000, 100000}; /* steps: blocks get far ahead of each other, too */
	order by = (order)random_below(ORDERS);
	unsigned warp = b.ready[random_below(b.ready.size())]->thread.x / WARP;

	for (uint64_t steps = 1 + random_below(most[random_below(3)]); steps > 0 && !b.ready.empty(); steps--) {
		if (!events.empty() && random_below(event_patience) == 0)
			happen();
		fiber *next = take_ready(b.ready, by, warp);
		if (!next)
			break;
		running = this;
		self = next;
		swapcontext(&context, &self->context);
		self = nullptr;
	}
}

/* ---- Fibers ---- */

void yield()
{
	self->block->ready.push_back(self);
	leave();
}

void hesitate()
{
	if (random_below(4) == 0)
		yield();
}

void wait(waiting &in, const char *what)
{
	self->awaits = what;
	in.push_back(self);
	leave();
}

void wake(waiting &in)
{
	for (fiber *f : in)
		f->block->ready.push_back(f);
	in.clear();
}

void arrive(meeting &m, unsigned threads)
{
	if (++m.arrived == threads) {
		m.arrived = 0;
		m.round++;
		wake(m.fibers);
		hesitate();
	}
}

void meet(meeting &m, unsigned threads, const char *what)
{
	uint64_t round = m.round;

	arrive(m, threads);
	while (m.round == round)
		wait(m.fibers, what);
}

void meet_team()
{
	team &t = *self->block->team;

	meet(t.met, (unsigned)(t.blocks.size() * t.blocks[0].fibers.size()),
	     "the threads of the blocks that run with its own");
}

const uint64_t *exchange(uint64_t value)
{
	warp &w = self->block->warps[self->thread.x / WARP];
	uint64_t *values = w.exchanged[w.met.round % 2];

	values[self->thread.x % WARP] = value;
	meet(w.met, WARP, "the other lanes of its warp");
	return values;
}

/* ---- Shared memory ---- */

uint32_t shared_address(const void *p)
{
	const memory &m = self->block->dynamic;

	return m.address + (uint32_t)((const char *)p - m.data);
}

static void check_living(const block &b)
{
	if (b.unfinished == 0)
		fail("block %u is reached for after its end", b.index);
}

char *shared_at(block &b, uint32_t address, unsigned bytes)
{
	uint32_t begin = address - b.dynamic.address;

	check_living(b);
	if (address < b.dynamic.address || begin > b.dynamic_bytes || bytes > b.dynamic_bytes - begin)
		fail("bytes %d to %d of shared memory are outside the %u that the block has", (int)begin,
		     (int)(begin + bytes), b.dynamic_bytes);
	return b.dynamic.data + begin;
}

mbarrier &mbarrier_at(block &b, uint32_t address)
{
	auto found = b.mbarriers.find(address);

	check_living(b);
	if (found == b.mbarriers.end())
		fail("no barrier was initialised at %d", (int)(address - b.dynamic.address));
	return found->second;
}

static void settle(mbarrier &m)
{
	if (m.pending != 0 || m.bytes != 0)
		return;
	m.phase++;
	m.pending = m.count;
	wake(m.fibers);
}

static void arrive(block &b, uint32_t address, unsigned expected_bytes)
{
	mbarrier &m = mbarrier_at(b, address);

	if (m.pending == 0)
		fail("more than %u arrivals at the barrier at %d", m.count, (int)(address - b.dynamic.address));
	m.bytes += expected_bytes;
	m.pending--;
	settle(m);
}

void mbarrier_arrive(block &b, uint32_t address, unsigned expected_bytes)
{
	arrive(b, address, expected_bytes);
	hesitate();
}

void mbarrier_wait(uint32_t address, unsigned parity)
{
	mbarrier &m = mbarrier_at(*self->block, address);

	hesitate();
	while (m.phase % 2 == parity)
		wait(m.fibers, "a barrier in shared memory");
}

/* ---- Copies ---- */

void copy_in(block &b, uint32_t to, unsigned bytes, uint32_t barrier, std::function<void(block &)> copy)
{
	memset(shared_at(b, to, bytes), 0xff, bytes);
	mbarrier_at(b, barrier);
	b.copies_under_way++;
	events.push_back([&b, bytes, barrier, copy] {
		mbarrier &m = mbarrier_at(b, barrier);
		copy(b);
		b.copies_under_way--;
		m.bytes -= bytes;
		settle(m);
	});
}

void copy_element(float *to, const float *from, unsigned there)
{
	*to = NAN;
	self->elements.push_back({to, from, there});
}

void mbarrier_arrive_copied(uint32_t address)
{
	block &b = *self->block;

	b.copies_under_way++;
	events.push_back([&b, address, elements = std::move(self->elements)] {
		for (auto &e : elements) {
			*e.to = 0;
			if (e.there > 0)
				memcpy(e.to, e.from, e.there);
		}
		b.copies_under_way--;
		arrive(b, address, 0);
	});
	self->elements.clear();
}

static std::set<uint64_t> stores_under_way;
static uint64_t stores_begun;
static waiting awaiting_stores;

void copy_out(std::function<void(block &)> copy)
{
	block &b = *self->block;
	uint64_t store = stores_begun++;

	b.copies_under_way++;
	self->stores.push_back(store);
	stores_under_way.insert(store);
	events.push_back([&b, store, copy] {
		copy(b);
		b.copies_under_way--;
		stores_under_way.erase(store);
		wake(awaiting_stores);
	});
}

void commit_copies_out()
{
	self->store_commits.push_back(std::move(self->stores));
	self->stores.clear();
}

void await_copies_out(unsigned left)
{
	for (; self->store_commits.size() > left; self->store_commits.pop_front())
		for (uint64_t store : self->store_commits.front())
			while (stores_under_way.count(store))
				wait(awaiting_stores, "its stores");
}

/* ---- Products ---- */

static warpgroup &own_warpgroup()
{
	return self->block->warpgroups[self->thread.x / WARPGROUP];
}

void begin_product(const product &like, float *sums, const void *a_registers)
{
	warpgroup &g = own_warpgroup();
	unsigned i = self->products++ - g.computed, thread = self->thread.x % WARPGROUP;

	if (i == g.under_way.size())
		g.under_way.push_back(like);
	product &p = g.under_way[i];
	if (p.compute != like.compute || p.a != like.a || p.b != like.b || p.keep != like.keep)
		fail("the threads of a warpgroup want different products");
	p.sums[thread] = sums;
	p.a_registers[thread] = a_registers;
	if (++p.begun == WARPGROUP)
		wake(g.fibers);
}

void commit_products()
{
	self->product_commits.push_back(self->products);
}

void await_products(unsigned left)
{
	warpgroup &g = own_warpgroup();

	hesitate();
	for (; self->product_commits.size() > left; self->product_commits.pop_front())
		while (g.computed < self->product_commits.front()) {
			product &next = g.under_way.front();
			if (next.begun < WARPGROUP) {
				wait(g.fibers, "a product of its warpgroup");
				continue;
			}
			next.compute(*self->block, next);
			g.under_way.pop_front();
			g.computed++;
		}
}

/* ---- Launches ---- */

static void make_block(block &b, team &t, unsigned first, unsigned rank)
{
	b.team = &t;
	b.index = first + rank;
	b.rank = rank;
	b.fibers.resize(launched->threads);
	b.unfinished = launched->threads;
	b.dynamic_bytes = launched->shared_bytes;
	b.warps.resize((launched->threads + WARP - 1) / WARP);
	b.warpgroups.resize(launched->threads / WARPGROUP);
}

[[noreturn]] static void report_deadlock(const std::vector<block *> &blocks)
{
	std::map<std::pair<unsigned, const char *>, unsigned> awaited;

	for (const block *b : blocks)
		for (const fiber &f : b->fibers)
			if (!f.done)
				awaited[{b->index, f.awaits ? f.awaits : "nothing"}]++;
	for (auto &a : awaited)
		fprintf(stderr, "block %u: %u threads await %s\n", a.first.first, a.second, a.first.second);
	fail("threads wait for ever");
}

/* One of those blocks that have fibers to run. */
static bool is_any_able(const std::vector<block *> &blocks, size_t *ret_which)
{
	size_t size = blocks.size(), first = random_below(size);

	for (size_t i = 0; i < size; i++) {
		*ret_which = (first + i) % size;
		if (!blocks[*ret_which]->ready.empty())
			return true;
	}
	return false;
}

/* Side by side, each block by a worker of its own. */
static void run_blocks(const std::vector<block *> &blocks)
{
	unsigned unfinished = 0;

	while (workers.size() < blocks.size())
		workers.push_back(std::make_unique<worker>());
	for (size_t i = 0; i < blocks.size(); i++)
		workers[i]->run([&, i] { workers[i]->begin(*blocks[i]); });
	for (size_t i; is_any_able(blocks, &i) || !events.empty();)
		if (blocks[i]->ready.empty())
			happen();
		else
			workers[i]->run([&] { workers[i]->run_for_a_while(*blocks[i]); });
	for (block *b : blocks)
		unfinished += b->unfinished;
	if (unfinished)
		report_deadlock(blocks);
}

static void run_teams(const std::vector<unsigned> &firsts, unsigned size)
{
	std::vector<team> teams(firsts.size());
	std::vector<block *> blocks;

	for (size_t i = 0; i < teams.size(); i++) {
		teams[i].blocks.resize(size);
		for (unsigned rank = 0; rank < size; rank++) {
			make_block(teams[i].blocks[rank], teams[i], firsts[i], rank);
			blocks.push_back(&teams[i].blocks[rank]);
		}
	}
	run_blocks(blocks);
}

/* How many of those clusters find room now, for the others come when they are done. */
static size_t places_for(size_t teams, const form &form)
{
	constexpr size_t FIBERS_MAX = 16384;
	size_t places =
	    std::min((size_t)gpu.multiprocessors / form.cluster, FIBERS_MAX / (form.cluster * form.threads));

	return 1 + random_below(std::clamp(places, (size_t)1, teams));
}

unsigned row;

void launch(const form &form, const std::function<void()> &body)
{
	static const unsigned event_patiences[] = {2, 30, 1000}, clock_patiences[] = {300, 10000, 100000};
	std::vector<unsigned> firsts;

	if (form.shared_bytes > SHARED_MAX || form.threads == 0 || form.threads > 1024 || form.blocks == 0 ||
	    form.blocks % form.cluster != 0)
		fail("a launch of %u blocks of %u threads, %u bytes of shared memory, clusters of %u",
		     form.blocks, form.threads, form.shared_bytes, form.cluster);
	launched = &form;
	kernel = &body;
	gridDim = {form.blocks, 1, 1};
	blockDim = {form.threads, 1, 1};
	event_patience = event_patiences[random_below(3)];
	clock_patience = clock_patiences[random_below(3)];
	for (unsigned first = 0; first < form.blocks; first += form.cluster)
		firsts.push_back(first);
	std::shuffle(firsts.begin(), firsts.end(), gpu.random);
	for (size_t n, done = 0; done < firsts.size(); done += n) {
		n = places_for(firsts.size() - done, form);
		run_teams({firsts.begin() + (ptrdiff_t)done, firsts.begin() + (ptrdiff_t)(done + n)},
		          form.cluster);
	}
}

} // namespace emulator

/* ---- For the program ---- */

extern "C" void emulated_gpu(unsigned multiprocessors, unsigned long long seed, const char *text)
{
	emulator::gpu.multiprocessors = multiprocessors;
	emulator::gpu.random.seed(seed);
	emulator::gpu.text = text;

	described_gpu described = {};
	described.major = 9;
	described.multiprocessors = (int)multiprocessors;
	described.shared_bytes_max = emulator::SHARED_MAX;
	described.clock_khz = 1980000; /* of an H200: kernels choose their cuts by it */
	described.memory_clock_khz = 3201000;
	described.bus_bits = 6016;
	described_gpu_set(&described);
}

/* ---- The CUDA runtime ---- */

extern "C" cudaError_t cudaPeekAtLastError(void)
{
	return cudaSuccess;
}

extern "C" cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream)
{
	(void)stream;
	memset(to, byte, bytes);
	return cudaSuccess;
}
