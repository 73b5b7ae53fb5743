/* The statistics as text, JSON and OpenMetrics. docs/statistics.md describes the three. */
#ifndef GRAFT_FORMATS_H
#define GRAFT_FORMATS_H

#include <stdbool.h>
#include <stdint.h>

#include "figures.h"
#include "page.h"

/* Whether each process has a file of its own. Then its samples have a label with its id, so that no two are alike. */
static bool graft_names_process;

GRAFT_SMALL void graft_put_line(struct graft_page *page, const char *label, uint64_t number, const char *unit)
{
	graft_put_text(page, "allograft: ");
	graft_put_text(page, label);
	graft_put_number(page, number);
	graft_put_text(page, unit);
}

GRAFT_SMALL void graft_put_known_line(struct graft_page *page, const char *label, uint64_t number, const char *unit)
{
	if (number != GRAFT_UNKNOWN) {
		graft_put_line(page, label, number, unit);
	} else {
		graft_put_text(page, "allograft: ");
		graft_put_text(page, label);
		graft_put_text(page, "unknown\n");
	}
}

GRAFT_SMALL void graft_put_statistics(struct graft_page *page, const struct graft_moment *now)
{
	const uint64_t *figures = now->figures;
	graft_put_text(page, "allograft: statistics of " GRAFT_DONOR " " GRAFT_VERSION ", process ");
	graft_put_number(page, now->process);
	graft_put_text(page, graft_is_forked ? ", since its fork\n" : "\n");
	graft_put_line(page, "allocated ", figures[graft_figure_allocated_bytes], " bytes in ");
	graft_put_number(page, figures[graft_figure_allocated_blocks]);
	graft_put_text(page, " blocks, ");
	graft_put_number(page, figures[graft_figure_freed_blocks]);
	graft_put_text(page, " freed\n");
	graft_put_line(page, "live      ", figures[graft_figure_live_bytes], " bytes in ");
	graft_put_number(page, figures[graft_figure_live_blocks]);
	graft_put_text(page, " blocks\n");
	graft_put_line(page, "peak      ", figures[graft_figure_peak_bytes], " bytes\n");
	graft_put_known_line(page, "retained  ", figures[graft_figure_retained_bytes], " bytes\n");
	graft_put_known_line(page, "resident  ", figures[graft_figure_resident_bytes], " bytes\n");
	graft_put_line(page, "reserved  ", figures[graft_figure_reserved_bytes], " bytes, ");
	graft_put_number(page, figures[graft_figure_reserved_peak_bytes]);
	graft_put_text(page, " at the peak\n");
	graft_put_line(page, "returned  ", figures[graft_figure_returned_bytes], " bytes\n");
	graft_put_line(page, "threads   ", figures[graft_figure_threads], "\n");
	graft_put_line(page, "forks     ", figures[graft_figure_forks], "\n");
	for (int i = 0; i < graft_function_count; i++) {
		if (!now->calls[i])
			continue;
		graft_put_line(page, "calls     ", now->calls[i], " of ");
		graft_put_text(page, graft_function_names[i]);
		graft_put_text(page, "\n");
	}
	for (int i = 0; i < GRAFT_CLASSES; i++) {
		const uint64_t *class = now->classes[i];
		if (graft_class_is_empty(class))
			continue;
		graft_put_text(page, "allograft: up to     ");
		graft_put_number(page, graft_class_bound(i));
		graft_put_text(page, " bytes: ");
		graft_put_number(page, class[graft_class_allocated_bytes]);
		graft_put_text(page, " bytes in ");
		graft_put_number(page, class[graft_class_allocated_blocks]);
		graft_put_text(page, " blocks, ");
		graft_put_number(page, class[graft_class_live_bytes]);
		graft_put_text(page, " in ");
		graft_put_number(page, class[graft_class_live_blocks]);
		graft_put_text(page, " live\n");
	}
}

GRAFT_SMALL void graft_put_field(struct graft_page *page, const char *before, const char *name, uint64_t number)
{
	graft_put_text(page, before);
	graft_put_text(page, "\"");
	graft_put_text(page, name);
	graft_put_text(page, "\": ");
	if (number == GRAFT_UNKNOWN)
		graft_put_text(page, "null");
	else
		graft_put_number(page, number);
}

GRAFT_SMALL void graft_put_json(struct graft_page *page, const struct graft_moment *now)
{
	graft_put_text(page, "{\n  \"schema_version\": 2,\n  \"donor\": \"" GRAFT_DONOR
	                     "\",\n  \"version\": \"" GRAFT_VERSION "\"");
	graft_put_field(page, ",\n  ", "process", now->process);
	graft_put_text(page, graft_is_forked ? ",\n  \"forked\": true" : ",\n  \"forked\": false");
	for (int i = 0; i < graft_figure_count; i++)
		graft_put_field(page, ",\n  ", graft_figures[i].name, now->figures[i]);
	graft_put_text(page, ",\n  \"calls\": {");
	for (int i = 0; i < graft_function_count; i++)
		graft_put_field(page, i ? ", " : "", graft_function_names[i], now->calls[i]);
	graft_put_text(page, "},\n  \"size_classes\": [");
	bool first = true;
	for (int i = 0; i < GRAFT_CLASSES; i++) {
		if (graft_class_is_empty(now->classes[i]))
			continue;
		/* The last bound is the greatest number, so it is not put as a field. */
		graft_put_text(page, first ? "\n    {\"up_to\": " : ",\n    {\"up_to\": ");
		graft_put_number(page, graft_class_bound(i));
		for (int figure = 0; figure < GRAFT_CLASS_FIGURES; figure++)
			graft_put_field(page, ", ", graft_class_figures[figure].name, now->classes[i][figure]);
		graft_put_text(page, "}");
		first = false;
	}
	graft_put_text(page, first ? "]\n}\n" : "\n  ]\n}\n");
}

/* The name of a family. Those by size class have their own, so that a sum over one family counts nothing twice. */
GRAFT_SMALL void graft_put_family(struct graft_page *page, const char *before, const char *group,
                                  const struct graft_figure *figure)
{
	graft_put_text(page, before);
	graft_put_text(page, "allograft_");
	graft_put_text(page, group);
	graft_put_text(page, figure->name);
}

GRAFT_SMALL void graft_put_head(struct graft_page *page, const char *group, const struct graft_figure *figure)
{
	graft_put_family(page, "# TYPE ", group, figure);
	graft_put_text(page, figure->kind == graft_counter ? " counter\n" : " gauge\n");
	if (*figure->unit) {
		graft_put_family(page, "# UNIT ", group, figure);
		graft_put_text(page, " ");
		graft_put_text(page, figure->unit);
		graft_put_text(page, "\n");
	}
	graft_put_family(page, "# HELP ", group, figure);
	graft_put_text(page, " ");
	graft_put_text(page, figure->description);
	graft_put_text(page, "\n");
}

/* One sample. `label` is the beginning of a label, to which `value` or `number` is added, or empty. */
GRAFT_SMALL void graft_put_sample(struct graft_page *page, uint64_t process, const char *group,
                                  const struct graft_figure *figure, const char *label, const char *value,
                                  uint64_t bound, uint64_t number)
{
	graft_put_family(page, "", group, figure);
	graft_put_text(page, figure->kind == graft_counter ? "_total" : "");
	graft_put_text(page, "{donor=\"" GRAFT_DONOR "\",version=\"" GRAFT_VERSION "\"");
	if (graft_names_process) {
		graft_put_text(page, ",process=\"");
		graft_put_number(page, process);
		graft_put_text(page, "\"");
	}
	if (*label) {
		graft_put_text(page, label);
		if (value)
			graft_put_text(page, value);
		else
			graft_put_number(page, bound);
		graft_put_text(page, "\"");
	}
	graft_put_text(page, "} ");
	graft_put_number(page, number);
	graft_put_text(page, "\n");
}

GRAFT_SMALL void graft_put_openmetrics(struct graft_page *page, const struct graft_moment *now)
{
	static const struct graft_figure calls = {"calls", "", "Calls, by function.", graft_counter};
	for (int i = 0; i < graft_figure_count; i++) {
		if (now->figures[i] == GRAFT_UNKNOWN)
			continue;
		graft_put_head(page, "", &graft_figures[i]);
		graft_put_sample(page, now->process, "", &graft_figures[i], "", "", 0, now->figures[i]);
	}
	graft_put_head(page, "", &calls);
	for (int i = 0; i < graft_function_count; i++)
		graft_put_sample(page, now->process, "", &calls, ",function=\"", graft_function_names[i], 0, now->calls[i]);
	for (int figure = 0; figure < GRAFT_CLASS_FIGURES; figure++) {
		graft_put_head(page, "class_", &graft_class_figures[figure]);
		for (int i = 0; i < GRAFT_CLASSES; i++) {
			if (!graft_class_is_empty(now->classes[i]))
				graft_put_sample(page, now->process, "class_", &graft_class_figures[figure], ",up_to=\"", 0,
				                 graft_class_bound(i), now->classes[i][figure]);
		}
	}
	graft_put_text(page, "# EOF\n");
}

#endif
