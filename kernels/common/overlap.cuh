/*
 * overlap.cuh: kernels that follow each other in a stream and overlap: the next one's blocks come as soon as
 * there is room for them and wait until the kernel before is done (launch.cuh: `early`). What a launch and a
 * block's beginning take is then no pause between two kernels, 1 µs of each.
 *
 * Both instructions take time in every block: a kernel whose blocks do next to nothing, one element to a
 * thread, is a quarter slower with them.
 *
 * A kernel that is launched early calls await_kernel_before() in every block, before it reads or writes global
 * memory. What it reads by ld.global.nc, which the compiler chooses for `const *__restrict__` and __ldg(), may
 * be read before that: there must be none but of what no kernel writes.
 */
#ifndef KOPS_KERNELS_OVERLAP_H
#define KOPS_KERNELS_OVERLAP_H

namespace
{

/*
 * Blocks of the next kernel may come, once all of this one have called it, and wait in await_kernel_before().
 * Called last where blocks are small and many: those that come while others still hold places come to lie
 * unequally (add, 512 Ki f32 in L2: 2.2 us, and 1.7 so). First where a block fills its multiprocessor.
 */
__device__ __forceinline__ void let_next_kernel_come()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Until the kernel before is done and what it wrote is there. */
__device__ __forceinline__ void await_kernel_before()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

} // namespace

#endif
