//! Plots as SVG: curves where the cases of a table are points on an axis, bars otherwise. Bars show each server
//! relative to the better peer, because cases differ by more than an axis can show.

use std::error::Error;

use plotters::prelude::*;

use crate::figures::{Row, Table};

type Canvas<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

const WIDTH: u32 = 900;

/// More than the average width of a letter in a case's name.
const LETTER_WIDTH: u32 = 8;

/// Our server's colour is the last.
const COLOURS: [RGBColor; 4] =
    [RGBColor(196, 78, 82), RGBColor(221, 170, 51), RGBColor(120, 120, 120), RGBColor(35, 110, 180)];

/// Draws one quantity of a table.
pub(crate) fn draw(table: &Table, quantity: usize) -> Result<String, String> {
    let mut svg = String::new();
    let is_curve = table.rows.iter().all(|row| row.x.is_some());
    let height = if is_curve { 420 } else { 75 + 22 * (table.servers.len() * (table.rows.len() + 1)) as u32 };
    let canvas = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    let drawn = if is_curve { curves(&canvas, table, quantity) } else { bars(&canvas, table, quantity) };
    drawn.map_err(|error| format!("the plot of {}: {error}", table.name))?;
    drop(canvas);
    Ok(svg)
}

fn colour(table: &Table, server: usize) -> RGBColor {
    let ours = COLOURS.len() - 1;
    if server + 1 == table.servers.len() { COLOURS[ours] } else { COLOURS[server % ours] }
}

/// A line for each server, over a logarithmic axis of the cases.
fn curves(canvas: &Canvas<'_>, table: &Table, quantity: usize) -> Result<(), Box<dyn Error>> {
    let points = |server: usize| table.rows.iter().filter_map(move |row| Some((row.x?, row.median(quantity, server))));
    let all = (0..table.servers.len()).flat_map(points);
    let (mut xs, mut top) = (f64::MAX..0.0, 0f64);
    for (x, y) in all {
        (xs.start, xs.end, top) = (xs.start.min(x), xs.end.max(x), top.max(y));
    }
    canvas.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(canvas)
        .margin(15)
        .x_label_area_size(45)
        .y_label_area_size(70)
        // Room for the legend above the lines.
        .build_cartesian_2d((xs.start..xs.end * 1.05).log_scale(), 0.0..top * 1.3)?;
    let (x_name, y_name) = (&table.cases, &table.quantities[quantity].name);
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT).x_desc(x_name).y_desc(y_name).x_label_formatter(&|x| x.to_string()).draw()?;
    for (server, name) in table.servers.iter().enumerate() {
        let colour = colour(table, server);
        chart
            .draw_series(LineSeries::new(points(server), colour.stroke_width(2)).point_size(3))?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    chart.configure_series_labels().position(SeriesLabelPosition::UpperLeft).background_style(WHITE).draw()?;
    canvas.present()?;
    Ok(())
}

/// A group of horizontal bars for each case, from top to bottom.
fn bars(canvas: &Canvas<'_>, table: &Table, quantity: usize) -> Result<(), Box<dyn Error>> {
    let servers = table.servers.len();
    let relative =
        |row: &Row, server: usize| row.median(quantity, server) / table.better_peer(row, quantity).unwrap_or(1.0);
    let values = table.rows.iter().flat_map(|row| (0..servers).map(move |server| relative(row, server)));
    let longest = values.filter(|value| value.is_finite()).fold(1.0, f64::max);
    canvas.fill(&WHITE)?;
    let letters = table.rows.iter().map(|row| row.case.chars().count()).max().unwrap_or(0) as u32;
    // A case takes one unit of height; a fifth of it stays free below its bars. The legend takes the unit above the
    // first case.
    let mut chart = ChartBuilder::on(canvas)
        .margin(15)
        .x_label_area_size(45)
        .y_label_area_size(LETTER_WIDTH * letters + 10)
        .build_cartesian_2d(0.0..longest * 1.05, table.rows.len() as f64..-1.0)?;
    let title = format!("{}, the better peer = 1", table.quantities[quantity].name);
    chart.configure_mesh().disable_y_mesh().disable_y_axis().light_line_style(TRANSPARENT).x_desc(title).draw()?;
    let bar_height = 0.8 / servers as f64;
    for (server, name) in table.servers.iter().enumerate() {
        let colour = colour(table, server);
        let bar = |(number, row): (usize, &Row)| {
            let top = number as f64 + 0.1 + bar_height * server as f64;
            Rectangle::new([(0.0, top), (relative(row, server), top + bar_height)], colour.filled())
        };
        chart
            .draw_series(table.rows.iter().enumerate().map(bar))?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    chart.draw_series([PathElement::new([(1.0, 0.0), (1.0, table.rows.len() as f64)], BLACK.stroke_width(1))])?;
    let label = ("sans-serif", 14).into_font().color(&BLACK);
    for (number, row) in table.rows.iter().enumerate() {
        let (_, y) = chart.backend_coord(&(0.0, number as f64 + 0.5));
        canvas.draw(&Text::new(row.case.clone(), (10, y - 7), label.clone()))?;
    }
    chart.configure_series_labels().position(SeriesLabelPosition::UpperRight).background_style(WHITE).draw()?;
    canvas.present()?;
    Ok(())
}
