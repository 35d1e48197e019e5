/* tensor_map.cc: tensor maps, and copies by them. */
#include <string.h>

#include <cuda.h>

#include "instructions.h"

namespace
{

/* What a map is here. */
struct tensor_map {
	char *data;
	uint64_t extents[4], strides[3]; /* elements; bytes */
	uint32_t box[2];
	unsigned element_bytes;
	bool rounds;            /* f32 to tf32 */
	unsigned swizzle_bytes; /* of its lines, which are as long; 0: lines of any length */

	uint32_t line_bytes() const
	{
		return box[0] * element_bytes;
	}
	/* Which of the pieces of 16 bytes in a line are exchanged depends on the address alone. */
	uint32_t swizzled(uint32_t at) const
	{
		return swizzle_bytes ? at ^ (at >> 7 & (swizzle_bytes / 16 - 1)) << 4 : at;
	}
};

static_assert(sizeof(tensor_map) <= sizeof(CUtensorMap));

tensor_map map_at(const void *map)
{
	tensor_map m;

	memcpy(&m, map, sizeof m);
	return m;
}

/* As the driver's, of maps with three or four axes: what it asks for is in its manual. */
CUresult encode(CUtensorMap *ret, CUtensorMapDataType type, cuuint32_t rank, void *data,
                const cuuint64_t *extents, const cuuint64_t *strides, const cuuint32_t *box,
                const cuuint32_t *steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
	tensor_map m = {(char *)data,
	                {extents[0], extents[1], extents[2], rank == 4 ? extents[3] : 1},
	                {strides[0], strides[1], rank == 4 ? strides[2] : 0},
	                {box[0], box[1]},
	                type == CU_TENSOR_MAP_DATA_TYPE_UINT16 ? 2u : 4u,
	                type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
	                swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : 16u << swizzle};

	if ((rank != 3 && rank != 4) || (uintptr_t)data % 16 != 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < rank; i++)
		if (extents[i] == 0 || extents[i] > (uint64_t)1 << 32 || box[i] == 0 || box[i] > 256 ||
		    steps[i] != 1)
			return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < rank - 1; i++)
		if (strides[i] % 16 != 0 || strides[i] >= (uint64_t)1 << 40)
			return CUDA_ERROR_INVALID_VALUE;
	if (box[2] != 1 || box[rank - 1] != 1 || m.line_bytes() % 16 != 0 ||
	    (m.swizzle_bytes && m.line_bytes() > m.swizzle_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(ret, &m, sizeof m);
	return CUDA_SUCCESS;
}

/* Of an element of lines of this length; null outside. */
char *element_of(const tensor_map &m, uint64_t length, int64_t x, int64_t y, const hopper::box_place &at)
{
	bool there = x >= 0 && y >= 0 && at.z >= 0 && at.w >= 0 && (uint64_t)x < length &&
	             (uint64_t)y < m.extents[1] && (uint64_t)at.z < m.extents[2] &&
	             (uint64_t)at.w < m.extents[3];

	return there ? m.data + x * m.element_bytes + y * (int64_t)m.strides[0] + at.z * (int64_t)m.strides[1] +
	                   at.w * (int64_t)m.strides[2]
	             : nullptr;
}

/* Calls use(in shared memory, in the matrix or null) for all elements of a box. */
template <class USE>
void each_element(emulator::block &b, const tensor_map &m, uint64_t length, uint32_t box,
                  const hopper::box_place &place, USE use)
{
	for (uint32_t line = 0; line < m.box[1]; line++)
		for (uint32_t i = 0; i < m.box[0]; i++) {
			uint32_t at = box + line * m.line_bytes() + i * m.element_bytes;
			use(emulator::shared_at(b, m.swizzled(at), m.element_bytes),
			    element_of(m, length, (int64_t)place.x + i, (int64_t)place.y + line, place));
		}
}

/* To nearest. */
void round_to_tf32(char *element)
{
	uint32_t bits;

	memcpy(&bits, element, sizeof bits);
	if ((bits & 0x7f800000) != 0x7f800000)
		bits += 0x1000;
	bits &= ~0x1fffu;
	memcpy(element, &bits, sizeof bits);
}

void check_box(const tensor_map &m, uint32_t at, int x)
{
	if (x * (int)m.element_bytes % 16 != 0)
		emulator::fail(
		    "a box that begins within 16 bytes of a line: an illegal instruction on an H200");
	if (at % 128 != 0 || (m.swizzle_bytes && m.line_bytes() != m.swizzle_bytes))
		emulator::fail("a box in shared memory that is not aligned to 128 bytes, or has no such lines");
}

} // namespace

namespace hopper
{

void copy_box_in(emulator::block &b, uint32_t to, const void *map, const box_place &at, uint32_t barrier)
{
	tensor_map m = map_at(map);

	check_box(m, to, at.x);
	emulator::copy_in(b, to, m.box[1] * m.line_bytes(), barrier, [=](emulator::block &there) {
		each_element(there, m, m.extents[0], to, at, [&](char *shared, const char *element) {
			if (element)
				memcpy(shared, element, m.element_bytes);
			else
				memset(shared, 0, m.element_bytes);
			if (m.rounds)
				round_to_tf32(shared);
		});
	});
}

/* Writes whole pieces of 16 bytes, as an H200 does: the last one of a line goes beyond the line's end. */
void store_box_at(const void *map, const box_place &at, uint32_t from)
{
	tensor_map m = map_at(map);
	uint64_t piece = 16 / m.element_bytes, length = (m.extents[0] + piece - 1) / piece * piece;

	check_box(m, from, at.x);
	emulator::copy_out([=](emulator::block &there) {
		each_element(there, m, length, from, at, [&](const char *shared, char *element) {
			if (element)
				memcpy(element, shared, m.element_bytes);
		});
	});
}

} // namespace hopper

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **ret_entry, unsigned,
                                                        unsigned long long,
                                                        cudaDriverEntryPointQueryResult *ret)
{
	if (strcmp(symbol, "cuTensorMapEncodeTiled") != 0)
		return cudaErrorInvalidValue;
	*ret_entry = (void *)encode;
	*ret = cudaDriverEntryPointSuccess;
	return cudaSuccess;
}
