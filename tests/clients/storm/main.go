// Command storm calls List at a steady rate over one long-lived connection, as a node agent does, until its standard input ends:
// main SOCKET CALLS_PER_SECOND. The node's clock stands in front, so that replies can be held against what was true then.
//
// One line per call: START END CODE STALE TEXT-OR-PODS, times in microseconds since 1970, STALE the podresources-stale metadata or
// "-"; for code 0 the pods as namespace/name=devices, sorted, with commas.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const deadline = 10 * time.Second

func pods(reply *v1.ListPodResourcesResponse) string {
	var all []string
	for _, pod := range reply.GetPodResources() {
		devices := 0
		for _, container := range pod.GetContainers() {
			for _, entry := range container.GetDevices() {
				devices += len(entry.GetDeviceIds())
			}
		}
		all = append(all, fmt.Sprintf("%s/%s=%d", pod.GetNamespace(), pod.GetName(), devices))
	}
	sort.Strings(all)
	return strings.Join(all, ",")
}

func call(client v1.PodResourcesListerClient) string {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	var header metadata.MD
	start := time.Now()
	reply, err := client.List(ctx, &v1.ListPodResourcesRequest{}, grpc.Header(&header))
	end := time.Now()
	stale := "-"
	if values := header.Get("podresources-stale"); len(values) > 0 {
		stale = values[0]
	}
	state, _ := status.FromError(err)
	outcome := pods(reply)
	if err != nil {
		outcome = strings.ReplaceAll(state.Message(), "\n", " ")
	}
	return fmt.Sprintf("%d %d %d %s %s", start.UnixMicro(), end.UnixMicro(), state.Code(), stale, outcome)
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: main SOCKET CALLS_PER_SECOND")
		os.Exit(64)
	}
	rate, err := strconv.ParseFloat(os.Args[2], 64)
	if err != nil || rate <= 0 {
		fmt.Fprintln(os.Stderr, "CALLS_PER_SECOND must be a number above 0")
		os.Exit(64)
	}
	connection, err := grpc.NewClient("unix://"+os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	client := v1.NewPodResourcesListerClient(connection)

	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(ended) }()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			fmt.Fprintln(out, call(client))
			if out.Flush() != nil {
				return
			}
		}
	}
}
