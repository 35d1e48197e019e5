/*
 * heap.h: the daemon's priority queue, a pairing heap (Fredman, Sedgewick, Sleator and Tarjan 1986). Structs
 * join it by a member of type struct heap_node. Finding the first and putting take constant time; removing any
 * takes O(log n), amortized.
 *
 * A zeroed heap is empty, and a zeroed node is in none. All calls for a heap pass the same order, which does
 * not change for two nodes in the heap. A heap that is not empty must not move in memory.
 *
 * Invariants: no node goes before its parent; `slot` is the pointer that leads to the node.
 */
#ifndef KOPS_HEAP_H
#define KOPS_HEAP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/invariant.h"

struct heap_node {
	struct heap_node *child, *sibling;
	struct heap_node **slot; /* NULL: it is in no heap */
};

struct heap {
	struct heap_node *first; /* NULL: the heap is empty */
};

/* Returns true if a goes before b. */
typedef bool heap_order(const struct heap_node *a, const struct heap_node *b);

static inline bool heap_has(const struct heap_node *node)
{
	return node->slot;
}

/* Melds two heaps, either of which may be NULL. The caller sets the slot of the result. */
static inline struct heap_node *heap_meld(struct heap_node *a, struct heap_node *b, heap_order *before)
{
	struct heap_node *top = b && (!a || before(b, a)) ? b : a, *below = top == a ? b : a;

	if (!below)
		return top;
	INVARIANT(!before(below, top));
	below->sibling = top->child;
	if (below->sibling)
		below->sibling->slot = &below->sibling;
	below->slot = &top->child;
	top->child = below;
	return top;
}

/* Melds siblings: in pairs from the first on, then the pairs from the last on. */
static inline struct heap_node *heap_meld_all(struct heap_node *first, heap_order *before)
{
	struct heap_node *pairs = NULL, *top = NULL, *next;

	while (first) {
		struct heap_node *second = first->sibling, *pair;

		next = second ? second->sibling : NULL;
		pair = heap_meld(first, second, before);
		pair->sibling = pairs;
		pairs = pair;
		first = next;
	}
	for (; pairs; pairs = next) {
		next = pairs->sibling;
		top = heap_meld(top, pairs, before);
	}
	return top;
}

static inline void heap_set_first(struct heap *heap, struct heap_node *first)
{
	heap->first = first;
	if (!first)
		return;
	first->sibling = NULL;
	first->slot = &heap->first;
}

static inline void heap_put(struct heap *heap, struct heap_node *node, heap_order *before)
{
	PRE(!heap_has(node) && !node->child && !node->sibling);
	heap_set_first(heap, heap_meld(heap->first, node, before));
	POST(*node->slot == node);
}

/* Removes the node from its heap. */
static inline void heap_remove(struct heap *heap, struct heap_node *node, heap_order *before)
{
	struct heap_node *rest = heap_meld_all(node->child, before);

	PRE(heap_has(node) && *node->slot == node);
	if (heap->first != node) {
		*node->slot = node->sibling;
		if (node->sibling)
			node->sibling->slot = node->slot;
		rest = heap_meld(heap->first, rest, before);
	}
	heap_set_first(heap, rest);
	*node = (struct heap_node){0};
	POST(heap->first != node);
}

#endif
