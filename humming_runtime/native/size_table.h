// Launches by m: a small hash table, emptied when it is full.
#pragma once

#include "launch.h"

enum { kTableSlots = 128, kMostSizes = 64 };

typedef struct {
  int count;
  struct {
    int64_t m;  // 0: free
    Launch* launch;
  } slots[kTableSlots];
} SizeTable;

Launch* size_table_find(const SizeTable* table, int64_t m);          // borrowed; NULL where there is none
void size_table_put(SizeTable* table, int64_t m, Launch* launch);    // keeps the launch, in place of an older one
void size_table_clear(SizeTable* table);
