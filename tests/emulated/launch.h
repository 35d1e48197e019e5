/* launch.h: launches, for the one source that is included after it. */
#ifndef KOPS_EMULATED_LAUNCH_H
#define KOPS_EMULATED_LAUNCH_H

#include <map>
#include <tuple>

#include "emulator.h"

namespace
{

/* Returns this source's dynamic shared memory of the calling thread. */
emulator::memory dynamic_shared();

/* Follows a source that declares `extern __shared__ __align__(alignment) type name[]`; CUDA guarantees 16. */
#define DYNAMIC_SHARED(type, name, alignment)                                                                  \
	namespace                                                                                              \
	{                                                                                                      \
	alignas(128) __shared__ type name[emulator::SHARED_MAX / sizeof(type)];                                \
	emulator::memory dynamic_shared()                                                                      \
	{                                                                                                      \
		return {(char *)name, 1024 + alignment};                                                       \
	}                                                                                                      \
	}

/* Follows a source without such a declaration. */
#define NO_DYNAMIC_SHARED                                                                                      \
	namespace                                                                                              \
	{                                                                                                      \
	emulator::memory dynamic_shared()                                                                      \
	{                                                                                                      \
		return {};                                                                                     \
	}                                                                                                      \
	}

/* Dynamic shared memory allowed to each kernel; 48 KiB by default. */
inline std::map<const void *, int> shared_allowed;

template <class KERNEL> cudaError_t cudaFuncSetAttribute(KERNEL *kernel, cudaFuncAttribute, int bytes)
{
	shared_allowed[(const void *)kernel] = bytes;
	return cudaSuccess;
}

inline void check_shared(const void *kernel, size_t bytes)
{
	auto allowed = shared_allowed.find(kernel);

	if (bytes > (allowed == shared_allowed.end() ? 48 << 10 : (size_t)allowed->second))
		emulator::fail("a launch with %zu bytes of shared memory, which the kernel may not have",
		               bytes);
}

inline emulator::form form_of(const cudaLaunchConfig_t &config)
{
	emulator::form form = {config.gridDim.x, config.blockDim.x, (unsigned)config.dynamicSmemBytes, 1,
	                       dynamic_shared};

	for (unsigned i = 0; i < config.numAttrs; i++) {
		const cudaLaunchAttribute &a = config.attrs[i];
		if (a.id == cudaLaunchAttributeClusterDimension)
			form.cluster = a.val.clusterDim.x;
	}
	if (config.gridDim.z * config.blockDim.y * config.blockDim.z != 1)
		emulator::fail("a launch of more dimensions than x, and y for blocks");
	return form;
}

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), const A &...arguments)
{
	std::tuple<P...> copies(arguments...);

	check_shared((const void *)kernel, config->dynamicSmemBytes);
	for (emulator::row = 0; emulator::row < config->gridDim.y; emulator::row++)
		emulator::launch(form_of(*config), [&] { std::apply(kernel, copies); });
	emulator::row = 0;
	return cudaSuccess;
}

} // namespace

#endif
