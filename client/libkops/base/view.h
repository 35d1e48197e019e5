/* view.h: views, as the wire and repeat.c see them. */
#ifndef KOPS_CLIENT_VIEW_H
#define KOPS_CLIENT_VIEW_H

#include "libkops/base/state.h"

/*
 * Fills lo, hi and dense from the view. If the view overflows, the range is all bytes: the daemon will refuse
 * it.
 */
void client_view_extent(struct operand *operand);

/* Makes the wire form, which points into *view. Dense strides are left out. */
void client_view_encode(const kops_view *view, Kops__V1__View *ret_wire);

#endif
