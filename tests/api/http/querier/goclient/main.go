// Asks a QuerierService through Pyroscope's published client, and prints what it answers as one JSON object.
//
//	goclient URL START_MS END_MS SPAN_ID
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"

	"connectrpc.com/connect"
	querier "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	types "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
)

const cpu = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	url := os.Args[1]
	start, end := must(strconv.ParseInt(os.Args[2], 10, 64)), must(strconv.ParseInt(os.Args[3], 10, 64))
	answers := map[string]any{}
	for name, option := range map[string]connect.ClientOption{"proto": connect.WithSendGzip(), "json": connect.WithProtoJSON()} {
		client := querierv1connect.NewQuerierServiceClient(http.DefaultClient, url, option)
		answers[name] = ask(client, start, end, os.Args[4])
	}
	must(0, json.NewEncoder(os.Stdout).Encode(answers))
}

func ask(client querierv1connect.QuerierServiceClient, start, end int64, span string) map[string]any {
	ctx := context.Background()
	profileTypes := must(client.ProfileTypes(ctx, connect.NewRequest(&querier.ProfileTypesRequest{Start: 1000, End: 4000}))).Msg
	names := must(client.LabelNames(ctx, connect.NewRequest(&types.LabelNamesRequest{
		Matchers: []string{`{__profile_type__="` + cpu + `"}`}, Start: start, End: end}))).Msg
	values := must(client.LabelValues(ctx, connect.NewRequest(&types.LabelValuesRequest{
		Name: "service_name", Start: start, End: end}))).Msg
	series := must(client.Series(ctx, connect.NewRequest(&querier.SeriesRequest{
		LabelNames: []string{"service_name", "__profile_type__"}, Start: start, End: end}))).Msg
	points := must(client.SelectSeries(ctx, connect.NewRequest(&querier.SelectSeriesRequest{
		ProfileTypeID: cpu, LabelSelector: "{}", Start: start, End: end, Step: 60, GroupBy: []string{"service_name"}}))).Msg
	nodes := int64(1000)
	ofService := func(service string) *querier.SelectMergeStacktracesRequest {
		return &querier.SelectMergeStacktracesRequest{ProfileTypeID: cpu,
			LabelSelector: `{service_name="` + service + `"}`, Start: start, End: end, MaxNodes: &nodes}
	}
	merged := must(client.SelectMergeStacktraces(ctx, connect.NewRequest(ofService("checkout")))).Msg
	ofSpan := must(client.SelectMergeSpanProfile(ctx, connect.NewRequest(&querier.SelectMergeSpanProfileRequest{
		ProfileTypeID: cpu, LabelSelector: "{}", Start: start, End: end, SpanSelector: []string{span}}))).Msg
	profile := must(client.SelectMergeProfile(ctx, connect.NewRequest(&querier.SelectMergeProfileRequest{
		ProfileTypeID: cpu, LabelSelector: "{}", Start: start, End: end}))).Msg
	diff := must(client.Diff(ctx, connect.NewRequest(&querier.DiffRequest{Left: ofService("cart"), Right: ofService("checkout")}))).Msg
	_, refused := client.SelectMergeStacktraces(ctx, connect.NewRequest(&querier.SelectMergeStacktracesRequest{
		ProfileTypeID: "cpu", Start: start, End: end}))
	sums := map[string]int64{}
	functions := map[uint64]string{}
	for _, function := range profile.Function {
		functions[function.Id] = profile.StringTable[function.Name]
	}
	leaves := map[uint64]string{}
	for _, location := range profile.Location {
		leaves[location.Id] = functions[location.Line[0].FunctionId]
	}
	for _, sample := range profile.Sample {
		sums[leaves[sample.LocationId[0]]] += sample.Value[0]
	}
	return map[string]any{
		"types": profileTypes.ProfileTypes[0].ID, "names": names.Names, "values": values.Names, "series": len(series.LabelsSet),
		"points": points.Series[0].Points[0].Value, "group": points.Series[0].Labels[0].Value,
		"functions": merged.Flamegraph.Names, "total": merged.Flamegraph.Total, "levels": merged.Flamegraph.Levels,
		"span": ofSpan.Flamegraph.Total, "leaves": sums, "left": diff.Flamegraph.LeftTicks, "right": diff.Flamegraph.RightTicks,
		"refused": connect.CodeOf(refused).String(),
	}
}
