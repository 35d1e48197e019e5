/* device.h: the variables and functions that CUDA C++ has without a header. */
#ifndef KOPS_EMULATED_DEVICE_H
#define KOPS_EMULATED_DEVICE_H

#include <algorithm>
#include <math.h>
#include <string.h>

#include "emulator.h"

using std::max;
using std::min;

#define threadIdx (::emulator::self->thread)
#define blockIdx  (uint3{::emulator::self->block->index, ::emulator::row, 0})

inline float __expf(float x)
{
	return expf(x);
}

inline float __fdividef(float x, float y)
{
	return x / y;
}

inline int atomicMin(int *at, int x)
{
	int old = *at;

	*at = min(old, x);
	return old;
}

template <class T> T __ldg(const T *from)
{
	return *from;
}

/* ---- Threads that wait for each other ---- */

inline void __syncthreads()
{
	emulator::block &b = *emulator::self->block;

	emulator::meet(b.met[0], (unsigned)b.fibers.size(), "the other threads of its block");
}

/* Whether the value holds in any thread. Nobody is two rounds ahead of a thread that has still to look. */
inline bool __syncthreads_or(bool value)
{
	emulator::block &b = *emulator::self->block;
	uint64_t round = b.met[0].round;
	emulator::vote &vote = b.votes[round % 2];

	if (vote.round != round)
		vote = {round, false};
	vote.any |= value;
	__syncthreads();
	return vote.any;
}

inline void __syncwarp()
{
	emulator::exchange(0);
}

template <class T> T emulated_shuffle(T value, unsigned lane)
{
	uint64_t bits = 0;

	memcpy(&bits, &value, sizeof value);
	bits = emulator::exchange(bits)[lane % emulator::WARP];
	memcpy(&value, &bits, sizeof value);
	return value;
}

template <class T> T __shfl_sync(unsigned, T value, int lane)
{
	return emulated_shuffle(value, (unsigned)lane);
}

template <class T> T __shfl_xor_sync(unsigned, T value, unsigned lanes)
{
	return emulated_shuffle(value, threadIdx.x % emulator::WARP ^ lanes);
}

inline unsigned __ballot_sync(unsigned, bool value)
{
	const uint64_t *of_lanes = emulator::exchange(value);
	unsigned lanes = 0;

	for (unsigned lane = 0; lane < emulator::WARP; lane++)
		lanes |= (unsigned)of_lanes[lane] << lane;
	return lanes;
}

inline bool __all_sync(unsigned lanes, bool value)
{
	return __ballot_sync(lanes, value) == lanes;
}

/* Does nothing: all writes are visible at once. */
inline void __threadfence()
{
}

inline int64_t clock64()
{
	emulator::hesitate();
	return emulator::now();
}

/* ---- Values ---- */

inline int __popc(unsigned bits)
{
	return __builtin_popcount(bits);
}

inline int __ffs(int bits)
{
	return __builtin_ffs(bits);
}

inline unsigned __float_as_uint(float value)
{
	unsigned bits;

	memcpy(&bits, &value, sizeof bits);
	return bits;
}

inline float __uint_as_float(unsigned bits)
{
	float value;

	memcpy(&value, &bits, sizeof value);
	return value;
}

/* The lower word of both, shifted right by `shift` % 32. */
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift)
{
	return (uint32_t)(((uint64_t)high << 32 | low) >> shift % 32);
}

/* Needs no lock, since one thread runs at a time. */
inline unsigned atomicMax(unsigned *at, unsigned value)
{
	unsigned old = *at;

	*at = std::max(old, value);
	return old;
}

inline unsigned atomicAdd(unsigned *at, unsigned value)
{
	unsigned old = *at;

	*at += value;
	return old;
}

#endif
