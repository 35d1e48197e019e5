#include "plan/window.h"

uint64_t window_lay_out(const struct op_args *args, const struct op_cut *cut, struct window *ret)
{
	struct op_args first;
	uint64_t offset = 0;

	op_part_operands(args, cut, 0, &first); /* no other part is larger */
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		struct window window = {.offset = offset, .n_places = op_cut_moves(args, cut, v) > 1 ? 2 : 1};
		struct layout image;

		if (view_is_in_host_memory(&args->views[v])) {
			layout_of(&first.views[v], &image);
			window.place_bytes = layout_aligned(image.bytes);
		}
		offset += window.n_places * window.place_bytes;
		if (ret)
			ret[v] = window;
	}
	return offset;
}

void window_args(const struct op_args *args, const struct op_cut *cut, uint32_t i, const struct window *windows,
                 char *scratch, struct op_args *ret)
{
	struct op_args part;

	op_part_operands(args, cut, i, &part);
	*ret = *args;
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		struct view *view = &ret->views[v];
		struct layout image;

		if (!view_is_in_host_memory(view)) {
			if (!view_is_absent(view))
				view->data = memory_at(view->space, view->offset);
			continue;
		}
		layout_of(&part.views[v], &image);
		for (uint32_t d = 0; d < view->rank; d++)
			view->strides[d] = image.strides[d];
		view->data =
		    windows ? window_image(&windows[v], scratch, 0) + image.origin * image.element : NULL;
	}
	if (!windows)
		return;
	op_part_operands(ret, cut, i, &part);
	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (view_is_in_host_memory(
		        &ret->views[v])) /* the part's element (0, …) is to lie where that was put */
			ret->views[v].data = (char *)ret->views[v].data -
			                     ((char *)part.views[v].data - (char *)ret->views[v].data);
}

bool window_is_read(const struct op_args *part, unsigned v)
{
	if (!op_is_output(part->op, v))
		return op_reads(part, v);
	return part->op->reads_output && part->op->reads_output(part, v);
}

static void kernel_part(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret)
{
	struct op_args whole;

	window_args(args, cut, i, NULL, NULL, &whole);
	op_part(&whole, cut, i, ret);
}

bool window_suits(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut)
{
	uint32_t corners[CORNERS_MAX];
	struct op_args part;
	const char *why_not;

	for (unsigned n = op_cut_corners(args, cut, corners); n-- > 0;) {
		kernel_part(args, cut, corners[n], &part);
		if (!kernel->supports(&part, &why_not))
			return false;
	}
	return true;
}

uint64_t window_workspace(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut)
{
	uint32_t corners[CORNERS_MAX];
	uint64_t most = 0;

	for (unsigned n = kernel->workspace ? op_cut_corners(args, cut, corners) : 0; n-- > 0;) {
		struct op_args part;
		uint64_t bytes;

		kernel_part(args, cut, corners[n], &part);
		bytes = kernel->workspace(&part);
		most = bytes > most ? bytes : most;
	}
	return most;
}
