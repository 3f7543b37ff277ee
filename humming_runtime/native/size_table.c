// See size_table.h.
#include "size_table.h"

// The slot of m, or the free one where it would go. There always is one: kMostSizes < kTableSlots.
static unsigned slot_of(const SizeTable* table, int64_t m) {
  unsigned at = (unsigned)((uint64_t)m * 0x9e3779b97f4a7c15u >> 57);
  while (table->slots[at].m && table->slots[at].m != m) at = (at + 1) % kTableSlots;
  return at;
}

Launch* size_table_find(const SizeTable* table, int64_t m) { return table->slots[slot_of(table, m)].launch; }

void size_table_put(SizeTable* table, int64_t m, Launch* launch) {
  if (table->count == kMostSizes) size_table_clear(table);
  const unsigned at = slot_of(table, m);
  Launch* const before = table->slots[at].launch;
  Py_IncRef((PyObject*)launch);
  table->slots[at].m = m;
  table->slots[at].launch = launch;
  if (before) {
    Py_DecRef((PyObject*)before);
  } else {
    ++table->count;
  }
}

void size_table_clear(SizeTable* table) {
  for (int i = 0; i < kTableSlots; ++i) {
    Launch* const launch = table->slots[i].launch;
    table->slots[i].m = 0;
    table->slots[i].launch = NULL;
    if (launch) Py_DecRef((PyObject*)launch);
  }
  table->count = 0;
}
