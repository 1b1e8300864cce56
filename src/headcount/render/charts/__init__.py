"""Charts as data with axes and ticks, drawn by matplotlib, on the page and in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.render.charts.chart import SHAPES as SHAPES
    from headcount.render.charts.chart import Axis as Axis
    from headcount.render.charts.chart import Chart as Chart
    from headcount.render.charts.chart import ChartSeries as ChartSeries
    from headcount.render.charts.chart import Dot as Dot
    from headcount.render.charts.chart import Level as Level
    from headcount.render.charts.chart import PaperValue as PaperValue
    from headcount.render.charts.chart import Shade as Shade
    from headcount.render.charts.chart import Style as Style
    from headcount.render.charts.chart import doubling_axis as doubling_axis
    from headcount.render.charts.chart import linear_axis as linear_axis
    from headcount.render.charts.chart import log_axis as log_axis
    from headcount.render.charts.chart import ramp as ramp
    from headcount.render.charts.chart import whole_axis as whole_axis
    from headcount.render.charts.matplotlib import picture as picture
    from headcount.render.charts.of_run import equal_error as equal_error
    from headcount.render.charts.of_run import error_by_heads as error_by_heads
    from headcount.render.charts.of_run import error_by_length as error_by_length
    from headcount.render.charts.of_run import scaling as scaling
    from headcount.render.charts.of_trials import curve_chart as curve_chart
    from headcount.render.charts.of_trials import models_chart as models_chart
    from headcount.render.charts.of_trials import panels_chart as panels_chart
    from headcount.render.charts.of_trials import step_fall as step_fall
    from headcount.render.charts.of_trials import transition_chart as transition_chart
    from headcount.render.charts.series import GUESSING as GUESSING
    from headcount.render.charts.series import dot as dot
    from headcount.render.charts.series import errors_axis as errors_axis
    from headcount.render.charts.series import level as level
    from headcount.render.charts.series import look as look
    from headcount.render.charts.series import numbered as numbered
    from headcount.render.charts.terminal import print_chart as print_chart
    from headcount.render.charts.terminal import print_run as print_run

__getattr__, __dir__ = open_door(__name__)
