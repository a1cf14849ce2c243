#include "core/data/document.h"
