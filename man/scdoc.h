/* scdoc.h: text for people, as the headers and `-h` have it, in the language of scdoc(5). */
#ifndef KOPS_MAN_SCDOC_H
#define KOPS_MAN_SCDOC_H

#include <stddef.h>
#include <stdio.h>

/* "NAME(SECTION)" and what follows it on every page, up to the name's line. */
void scdoc_begin(FILE *out, const char *name, int section);

/* # HEADING, in capitals. */
void scdoc_heading(FILE *out, const char *heading);

/* Text within a line, with what scdoc would take for markup escaped. */
void scdoc_inline(FILE *out, const char *text);

/* A term, bold, and what it is. */
void scdoc_term(FILE *out, const char *term, const char *text);

/* As it is written, less the indentation of the first line. */
void scdoc_literal(FILE *out, const char *text, size_t length);

/*
 * Paragraphs. A block of indented lines is a list if it begins with "- " or "1. ", a list of terms if its first
 * line has a gap of two blanks ("  term   what it is"), else literal.
 */
void scdoc_text(FILE *out, const char *text, size_t length);

#endif
