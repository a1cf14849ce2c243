/* record.h - how the warps of kernels touch memory. The kernels are compiled with the thread sanitizer's instrumentation and linked with
 * record.cpp instead of its runtime; one block runs at a time (CUDAEMU_SMS=1). C and C++. */
#ifndef RECORD_H
#define RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A line of a kernel: what the loads, or the stores, of memory of one kind did there. */
struct record_row {
    char kernel[96], file[64]; /* file without its folder */
    int line;
    bool write, shared;
    unsigned long accesses; /* of warps: the lanes that come to an instruction for the k-th time belong together */
    unsigned long bytes;    /* that the lanes asked for, each once */
    unsigned long sectors;  /* of global memory: pieces of 32 bytes that were touched */
    unsigned long ideal;    /* and as many as those bytes fill */
    unsigned worst;         /* shared memory: the most words of one bank that one phase of an access wants; 1: no conflict */
    unsigned long phases;   /* shared memory: phases, each as often as its bank with most words; without conflicts as many as `ideal` */
};

void record_start(void);
void record_stop(void); /* when what was launched is done */
/* Rows by kernel and line; how many there are, of which `room` are written. They stay until the next start. */
size_t record_rows(struct record_row *out, size_t room);
void record_print(FILE *to);

#ifdef __cplusplus
}
#endif

#endif
